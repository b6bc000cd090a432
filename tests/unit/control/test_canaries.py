"""Canaries: what may be tried, and what becomes of it."""

from __future__ import annotations

import pytest

from mesh import durations
from mesh.routing import NodeView
from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.members.canaries import (
    PROMOTE,
    WAIT,
    Counts,
    Outcome,
    Trying,
    canary_of,
    check_may_be_tried,
    judged,
)
from services.control.domain.members.rollouts import Answer, Phase
from services.control.domain.rules.edits import Create
from tests.unit.control.worlds import rule, rule_set, table

CANARY = canary_of(events.Canary(permille=100, duration=durations.of_ms(10_000)), ["g1", "g2"])
REVISION = 7
NOTHING = Counts()


def trying(tried: Counts = NOTHING, others: Counts = NOTHING) -> Trying:
    return Trying(Answer(REVISION, Phase.TRYING), tried, others)


def elsewhere(revision: int = 6) -> Trying:
    return Trying(Answer(revision, Phase.APPLIED))


def test_what_is_left_out_is_filled_in() -> None:
    canary = canary_of(events.Canary(members=["members/g2", "g1"]), ["g1", "g2"])
    assert list(canary.members) == ["g1", "g2"]
    assert (canary.permille, durations.whole_ms(canary.duration), canary.max_more_errors_permille) == (1000, 60_000, 10)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        (events.Canary(members=["g9"]), "members"),
        (events.Canary(permille=1001), "permille"),
        (events.Canary(duration=durations.of_ms(999)), "duration"),
        (events.Canary(max_more_errors_permille=-1), "max_more_errors_permille"),
    ],
)
def test_a_canary_that_can_not_be_is_refused(wanted: events.Canary, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        canary_of(wanted, ["g1"])
    assert refused.value.field == f"options.canary.{field}"


def test_what_decides_where_something_lives_is_not_for_canaries() -> None:
    before = rule_set("apples->c1")
    shown = before.change(Create(rule("client:sarama*->", "shown", node_view=NodeView.SINGLE)))
    check_may_be_tried(shown.before, shown.after)
    for other in (table("apples->c2"), table("apples->c1", "group:shop->c2"), table("apples->c1", "txn:till->c2")):
        with pytest.raises(NotAllowed, match="without a canary"):
            check_may_be_tried(table("apples->c1"), other)


def test_it_waits_for_its_time_and_is_then_for_everybody() -> None:
    gateways = {"g1": trying(), "g2": trying()}
    assert judged(REVISION, CANARY, 9_999, gateways) == WAIT
    assert judged(REVISION, CANARY, 10_000, gateways) == PROMOTE


def test_a_gateway_that_refuses_ends_it_at_once() -> None:
    refusing = Trying(Answer(REVISION, Phase.REFUSED, "no such view"))
    judgement = judged(REVISION, CANARY, 0, {"g1": trying(), "g2": refusing})
    assert (judgement.outcome, list(judgement.members)) == (Outcome.ABORT, ["g2"])
    assert "g2 refused: no such view" in judgement.cause


def test_errors_that_rise_where_it_is_tried_end_it() -> None:
    bad, good = Counts(40, 4), Counts(400, 4)
    judgement = judged(REVISION, CANARY, 0, {"g1": trying(bad, good), "g2": trying(Counts(10, 0), good)})
    assert judgement.outcome is Outcome.ABORT
    assert "4 of 50 requests failed where it is tried, 8 of 800" in judgement.cause


@pytest.mark.parametrize(
    ("tried", "others"),
    [
        (Counts(19, 19), Counts(100, 0)),
        (Counts(1000, 15), Counts(1000, 10)),
        (Counts(100, 50), Counts(100, 50)),
    ],
    ids=["too few to say anything", "not more than allowed", "as bad everywhere"],
)
def test_errors_that_say_nothing_about_it_do_not_end_it(tried: Counts, others: Counts) -> None:
    assert judged(REVISION, CANARY, 0, {"g1": trying(tried, others)}) == WAIT


def test_what_nobody_has_tried_is_given_up() -> None:
    assert judged(REVISION, CANARY, 10_000, {}).cause == "no gateway tried it"
    by_name = canary_of(events.Canary(members=["g1", "g2"], duration=durations.of_ms(10_000)), ["g1", "g2"])
    judgement = judged(REVISION, by_name, 10_000, {"g1": trying(), "g2": elsewhere()})
    assert (judgement.outcome, judgement.cause) == (Outcome.ABORT, "it was not tried by g2")


def test_gateways_that_do_not_take_part_say_nothing_about_it() -> None:
    by_name = canary_of(events.Canary(members=["g1"], duration=durations.of_ms(10_000)), ["g1", "g2"])
    refusing = Trying(Answer(REVISION, Phase.REFUSED, "x"))
    assert judged(REVISION, by_name, 10_000, {"g1": trying(), "g2": refusing}) == PROMOTE
