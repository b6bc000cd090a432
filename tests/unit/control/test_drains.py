"""Drains of clusters: which topics fit, what begins next, what comes of a move, and how a drain ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.message import Message

from mesh import durations
from mesh.record_rules import RecordRule
from mesh.routing import Place
from mesh.rpc import drains, events, record_rules, topic_moves
from services.control.domain.drains.drains import (
    CANCELLED,
    ENDED,
    LEFT,
    MOST_UNCERTIFIED,
    MOVED,
    MOVING,
    PAUSED,
    RUNNING,
    WAITING,
    Drains,
    begins_next,
    cancelled,
    completed,
    distrusts,
    fold_drains,
    is_within,
    move_of,
    outcome,
    paused,
    resumed,
    shown,
    started,
    step_of,
    strayed,
    to_roll_back,
)
from services.control.domain.drains.plans import Candidate, chosen, notes_of, planned
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.topic_moves.moves import COPYING, CUTTING, DONE, FAILED, Side, TopicMoves
from services.control.domain.topics.topics import SeenTopic
from services.control.store.drafts import PAYLOADS
from tests.unit.control.worlds import table

NAME = "drains/1"
NOW = datetime(2026, 11, 30, 3, 30, tzinfo=UTC)
SPEC = drains.DrainSpec(
    source_cluster="c1", target_cluster="c2", at_once=2, hold_budget=durations.of_ms(1000), cuts_at_most=3
)
TABLE = table("apples->c1", "bananas->c1", "cherries->c1", "dates->c2")
Move = topic_moves.MoveWithRecords


def waiting(*names: str) -> list[drains.DrainTopic]:
    return [drains.DrainTopic(topic=name, state=WAITING, partitions=1) for name in names]


def begun(topic: str) -> events.DrainMoveBegun:
    return events.DrainMoveBegun(name=NAME, topic=topic, move=f"topicmoves/{topic}")


def after(*payloads: Message, spec: drains.DrainSpec = SPEC) -> Drains:
    known = Drains()
    first = events.DrainStarted(drain=drains.Drain(
        name=NAME, spec=spec, state=RUNNING, topics=waiting("apples", "bananas", "cherries")
    ))  # fmt: skip
    for position, payload in enumerate((first, *payloads), 1):
        event = events.Event(position=position)
        getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
        known = fold_drains(known, event)
    return known


def move(topic: str, state: topic_moves.TopicMoveState.ValueType = COPYING, **fields: object) -> Move:
    return Move(
        name=f"topicmoves/{topic}", state=state, spec=topic_moves.TopicMoveSpec(topic=topic), **fields  # type: ignore[arg-type]
    )  # fmt: skip


def open_ones(*moves: Move) -> TopicMoves:
    return TopicMoves(open={each.name: each for each in moves})


def ended_ones(*moves: Move) -> TopicMoves:
    return TopicMoves(ended={each.name: each for each in moves})


def names(topics: Sequence[drains.DrainTopic]) -> list[str]:
    return [each.topic for each in topics]


def test_as_many_moves_begin_as_may_be_under_way() -> None:
    drain = after().get(NAME)
    assert names(begins_next(drain, TopicMoves(), NOW)) == ["apples", "bananas"]
    drain = after(begun("apples")).get(NAME)
    assert names(begins_next(drain, open_ones(move("apples")), NOW)) == ["bananas"]
    assert names(begins_next(drain, open_ones(move("apples")), NOW, {"bananas"})) == ["cherries"]
    assert not begins_next(
        after(begun("apples"), begun("bananas")).get(NAME), open_ones(move("apples"), move("bananas")), NOW
    )


def test_a_topic_that_waits_for_its_certificate_makes_room_for_the_next_within_a_bound() -> None:
    drain = after(begun("apples"), begun("bananas")).get(NAME)
    assert names(begins_next(drain, ended_ones(move("apples", DONE), move("bananas", DONE)), NOW)) == ["cherries"]
    crowd = drains.Drain(name=NAME, spec=SPEC, state=RUNNING, topics=waiting("last"))
    for number in range(MOST_UNCERTIFIED + SPEC.at_once):
        crowd.topics.add(topic=f"t{number}", state=MOVING, move=f"topicmoves/{number}")
    assert not begins_next(crowd, TopicMoves(), NOW)


@pytest.mark.parametrize(
    ("window", "within"),
    [
        ((60, 300), True),
        ((240, 300), False),
        ((210, 211), True),
        ((211, 210), False),
        ((1380, 240), True),
        ((1380, 120), False),
    ],
)
def test_moves_begin_only_within_the_window(window: tuple[int, int], within: bool) -> None:
    part = drains.DrainWindow(from_minute=window[0], to_minute=window[1])
    assert is_within(part, NOW) is within
    spec = drains.DrainSpec()
    spec.CopyFrom(SPEC)
    spec.window.CopyFrom(part)
    assert bool(begins_next(after(spec=spec).get(NAME), TopicMoves(), NOW)) is within


def test_a_drain_shows_its_counts_its_lag_and_why_nothing_begins() -> None:
    spec = drains.DrainSpec()
    spec.CopyFrom(SPEC)
    spec.window.CopyFrom(drains.DrainWindow(from_minute=65, to_minute=120))
    drain = after(begun("apples"), spec=spec).get(NAME)
    moves = open_ones(move("apples", problem="the disk of c2 is full"))
    found = shown(drain, moves, {"topicmoves/apples": 7}, {"bananas": "c2 is away"}, NOW)
    assert [(each.HasField("behind"), each.behind, each.problem) for each in found.topics] == [
        (True, 7, "the disk of c2 is full"),
        (False, 0, "c2 is away"),
        (False, 0, ""),
    ]
    assert (found.counts.waiting, found.counts.moving) == (2, 1)
    assert list(found.notes) == ["the window is closed: moves begin again at 01:05 UTC"]
    assert not shown(drain, moves, {}, {}, NOW.replace(hour=1)).notes
    assert not shown(after().get(NAME), moves, {}, {}, NOW).notes


def test_a_topic_that_a_rule_has_led_elsewhere_is_no_part_of_the_drain_any_more() -> None:
    assert strayed(SPEC, "apples", TABLE) == ""
    assert strayed(SPEC, "dates", TABLE) == "the rules lead it to 'c2' meanwhile"
    assert strayed(SPEC, "elderberries", TABLE) == "no rule leads it to a cluster any more"


def test_a_paused_drain_begins_nothing_until_it_is_resumed() -> None:
    known = after()
    pause = paused(known, NAME)
    assert pause is not None
    known = after(pause)
    assert known.get(NAME).state == PAUSED
    assert not begins_next(known.get(NAME), TopicMoves(), NOW)
    assert paused(known, NAME) is None
    resume = resumed(known, NAME)
    assert resume is not None
    assert begins_next(after(pause, resume).get(NAME), TopicMoves(), NOW)
    assert resumed(after(pause, resume), NAME) is None


def test_a_cancelled_drain_ends_when_no_move_is_under_way() -> None:
    cancel = cancelled(after(begun("apples")), NAME)
    assert cancel is not None
    known = after(begun("apples"), cancel)
    assert not begins_next(known.get(NAME), TopicMoves(), NOW)
    assert outcome(known.get(NAME)) is None
    assert cancelled(known, NAME) is None
    with pytest.raises(NotAllowed, match="is cancelling: it can't be resumed"):
        resumed(known, NAME)
    moved = events.DrainMoveEnded(name=NAME, topic="apples", confirmed=True)
    assert outcome(after(begun("apples"), cancel, moved).get(NAME)) == CANCELLED
    with pytest.raises(Unknown, match="drain 'drains/2' is not known"):
        cancelled(known, "drains/2")


def test_a_drain_is_done_when_each_topic_has_moved_or_stays() -> None:
    steps = (
        begun("apples"),
        events.DrainMoveEnded(name=NAME, topic="apples", confirmed=True, records=3),
        events.DrainTopicLeft(name=NAME, topic="bananas", problem="it is compacted"),
        begun("cherries"),
    )
    assert outcome(after(*steps).get(NAME)) is None
    last = events.DrainTopicLeft(name=NAME, topic="cherries", problem="cancelled")
    drain = after(*steps, last).get(NAME)
    assert outcome(drain) == ENDED
    assert [(each.state, each.records) for each in drain.topics] == [(MOVED, 3), (LEFT, 0), (LEFT, 0)]
    end = events.DrainEnded(name=NAME, state=ENDED, remainder=drains.DrainRemainder(groups=["g"]))
    known = after(*steps, last, end)
    assert not known.open
    assert known.get(NAME).remainder.groups == ["g"]
    assert after(*steps, last, end, begun("apples"), end) == known, "an event about a drain that has ended"


def test_a_move_that_misses_the_bound_too_often_is_rolled_back_while_it_copies() -> None:
    drain = after(begun("apples")).get(NAME)
    assert not to_roll_back(drain, open_ones(move("apples", cuts_given_up=2)))
    [found] = to_roll_back(drain, open_ones(move("apples", cuts_given_up=3)))
    assert found.name == "topicmoves/apples"
    assert not to_roll_back(drain, open_ones(move("apples", CUTTING, cuts_given_up=3)))


def test_a_topic_has_moved_when_its_move_has_a_certificate() -> None:
    drain = after(begun("apples")).get(NAME)
    topic = drain.topics[0]
    cuts = [topic_moves.TopicMoveCut(partition=0, end=9)]
    log = topic_moves.TopicMoveLog(records=9)
    proof = topic_moves.TopicMoveEvidence(partition=0, end=9, source=log, target=log)
    good = topic_moves.TopicMoveCertificate(confirmed=True, partitions=[proof])
    assert step_of(drain, topic, open_ones(move("apples"))) is None
    assert step_of(drain, topic, ended_ones(move("apples", DONE, cuts=cuts))) is None
    step = step_of(
        drain, topic, ended_ones(move("apples", DONE, cuts=cuts, certificate=good, pause=timedelta(milliseconds=400)))
    )
    assert step == events.DrainMoveEnded(
        name=NAME, topic="apples", pause=durations.of_ms(400), records=9, confirmed=True
    )
    assert not distrusts(step)
    late = step_of(
        drain, topic, ended_ones(move("apples", DONE, cuts=cuts, certificate=good, pause=timedelta(milliseconds=1400)))
    )
    assert late is not None and "producers waited 1400 ms, and the bound is 1000 ms" in late.problem
    bad = topic_moves.TopicMoveCertificate(differences=["partition 0 differs"])
    step = step_of(drain, topic, ended_ones(move("apples", DONE, cuts=cuts, certificate=bad)))
    assert step is not None
    assert distrusts(step) == "the certificate of topic 'apples' is not confirmed: partition 0 differs"


def test_a_topic_whose_move_did_not_get_there_stays_with_the_reason() -> None:
    drain = after(begun("apples")).get(NAME)
    failed = step_of(drain, drain.topics[0], ended_ones(move("apples", FAILED, problem="it was deleted")))
    assert failed == events.DrainTopicLeft(
        name=NAME, topic="apples", problem="topicmoves/apples is failed: it was deleted"
    )
    assert not distrusts(failed)
    gone = step_of(drain, drain.topics[0], TopicMoves())
    assert gone is not None and "so old that only the log has it" in gone.problem


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"source_cluster": "c9"}, "cluster 'c9' is not registered"),
        ({"target_cluster": "c1"}, "'c1' is the cluster to drain"),
        ({"at_once": 11}, "11 is not from 0 to 10; 0 means 2"),
        ({"hold_budget": timedelta(milliseconds=-1)}, "-1 ms is not from 0 to 10000 ms; 0 means 1000 ms"),
        ({"bytes_per_second": 1}, "gives 2 copies less than a byte each"),
        ({"window": drains.DrainWindow(from_minute=1, to_minute=1440)}, "not both from 0 to 1439"),
        ({"window": drains.DrainWindow(from_minute=1, to_minute=1)}, "begins and ends at the same minute"),
    ],
)
def test_an_order_with_a_wrong_field_is_refused_with_the_right_values(fields: dict[str, object], says: str) -> None:
    spec = drains.DrainSpec(**{"source_cluster": "c1", "target_cluster": "c2", **fields})  # type: ignore[arg-type]
    with pytest.raises(InvalidField, match=says):
        completed(spec, ["c1", "c2"])


def test_an_order_gets_its_defaults() -> None:
    found = completed(drains.DrainSpec(source_cluster="c1", target_cluster="c2"), ["c1", "c2"])
    assert (found.at_once, durations.whole_ms(found.hold_budget), found.cuts_at_most) == (2, 1000, 3)
    found.bytes_per_second = 10_000_001
    assert move_of(found, "apples").bytes_per_second == 5_000_000


def test_a_cluster_is_drained_once_and_not_into_a_cluster_that_is_drained() -> None:
    known = after()
    for source, target in (("c1", "c3"), ("c3", "c1")):
        spec = drains.DrainSpec(source_cluster=source, target_cluster=target)
        with pytest.raises(NotAllowed, match="drains/1 drains 'c1' just now"):
            started(known, "drains/2", spec, waiting("apples"), [], "ada", "", NOW)
    with pytest.raises(NotAllowed, match="no topic of 'c1' can move to 'c2'"):
        left = [drains.DrainTopic(topic="apples", state=LEFT, problem="compacted")]
        started(Drains(), "drains/2", SPEC, left, [], "ada", "", NOW)


def seen(*topics: str, cluster: str = "c1") -> list[SeenTopic]:
    return [SeenTopic(topic, Place(cluster, topic), 1, "rule") for topic in topics]


def test_a_drain_is_about_the_topics_of_its_cluster_that_match() -> None:
    everything = [*seen("shop.b", "shop.a", "till"), *seen("shop.c", cluster="c2")]
    assert [each.name for each in chosen(SPEC, everything)] == ["shop.a", "shop.b", "till"]
    spec = drains.DrainSpec(source_cluster="c1", target_cluster="c2", topics="shop.*")
    assert [each.name for each in chosen(spec, everything)] == ["shop.a", "shop.b"]
    with pytest.raises(InvalidField, match=r"rules lead no topic that matches 'shop\.\*' to 'c1'"):
        chosen(spec, seen("till"))
    with pytest.raises(InvalidField, match="1,001 topics are more than 1,000"):
        chosen(SPEC, seen(*(f"t{number}" for number in range(1001))))


def candidate(
    topic: str, bytes_: int | None = 10**9, partitions: int = 1, there: int = 0, **settings: str
) -> Candidate:
    here = Side(Place("c1", topic), partitions, {key.replace("_", "."): value for key, value in settings.items()})
    return Candidate(topic, here, Side(Place("c2", topic), there, {}), bytes_)


def plan_of(
    *candidates: Candidate, spec: drains.DrainSpec = SPEC, rules: Sequence[record_rules.RecordRuleSpec] = (),
    moves: TopicMoves | None = None,
) -> dict[str, str]:  # fmt: skip
    records = [RecordRule(each, 1, 1, "ada", NOW) for each in rules]
    found = planned(spec, TABLE, candidates, records, moves or TopicMoves(), ["mesh.events"])
    assert all((each.state == LEFT) is bool(each.problem) for each in found)
    return {each.topic: each.problem for each in found}


def mirror(rule_id: str, source: str, target: str, prefix: str) -> record_rules.RecordRuleSpec:
    spec = record_rules.MirrorSpec(source_cluster=source, target_cluster=target, topic_prefix=prefix)
    return record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=spec)


def test_a_plan_says_for_each_topic_why_it_stays() -> None:
    found = plan_of(candidate("apples"), candidate("bananas", cleanup_policy="compact"), candidate("cherries", there=3))
    assert found["apples"] == ""
    assert "is compacted on 'c1'" in found["bananas"]
    assert "has 1 partitions on 'c1', and 3 on 'c2'" in found["cherries"]
    assert "moves it already" in plan_of(candidate("apples"), moves=open_ones(move("apples")))["apples"]
    [found_own] = plan_of(candidate("mesh.events")).values()
    assert "the mesh itself keeps its log" in found_own


def test_a_topic_that_a_record_rule_writes_or_reads_on_the_cluster_stays() -> None:
    rules = [mirror("in", "c3", "c1", "app"), mirror("out", "c1", "c3", "ban"), mirror("elsewhere", "c2", "c3", "che")]
    found = plan_of(candidate("apples"), candidate("bananas"), candidate("cherries"), rules=rules)
    assert "record rule 'in' writes topic 'apples' on 'c1', and would not follow" in found["apples"]
    assert "record rule 'out' reads topic 'bananas' on 'c1'" in found["bananas"]
    assert found["cherries"] == ""
    found = plan_of(candidate("apples"), rules=[mirror("onto", "c3", "c2", "app")])
    assert "record rule 'onto' writes topic 'apples' on 'c2'" in found["apples"]
    target = record_rules.RecordTarget(cluster="c1", topic="apples")
    content = record_rules.ContentRuleSpec(source_cluster="c2", topic="dates", otherwise=target)
    found = plan_of(candidate("apples"), rules=[record_rules.RecordRuleSpec(record_rule_id="sorts", content=content)])
    assert "record rule 'sorts' writes topic 'apples'" in found["apples"]


def test_a_topic_that_takes_longer_than_the_window_is_too_large() -> None:
    spec = drains.DrainSpec()
    spec.CopyFrom(SPEC)
    spec.bytes_per_second = 2_000_000
    spec.window.CopyFrom(drains.DrainWindow(from_minute=1430, to_minute=5))
    found = plan_of(candidate("apples"), candidate("bananas", 10**8), candidate("cherries", None), spec=spec)
    assert "its copy takes some 1,000 s, and the window has 900 s" in found["apples"]
    assert (found["bananas"], found["cherries"]) == ("", "")
    [topic] = planned(spec, TABLE, [candidate("bananas", 10**8)], [], TopicMoves(), [])
    assert (topic.bytes, topic.seconds) == (10**8, 100)


def test_a_plan_notes_the_home_and_unknown_sizes() -> None:
    topics = planned(SPEC, TABLE, [candidate("apples", None)], [], TopicMoves(), [])
    home, sizes = notes_of(SPEC, TABLE, topics)
    assert home.startswith("c1 is the mesh's home")
    assert sizes == "c1 does not tell the sizes of 1 topics, so the time of their copies is open"
