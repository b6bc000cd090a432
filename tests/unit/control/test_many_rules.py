"""A change of a few among very many rules looks at few pairs of them: control answers nobody else meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.routing import (
    ClientMatch,
    ExactName,
    ForwardingRule,
    NamePrefix,
    NameRegex,
    RoutingTable,
    RuleVersion,
    UnmatchedTopics,
    living,
)
from mesh.routing import clients as clients_module
from services.control.api.edits import changing
from services.control.domain.errors import NotAllowed
from services.control.domain.rules import kinds, moves
from services.control.domain.rules.covers import suspicions
from services.control.domain.rules.edits import Before, Create, Edit, Place, Remove, RuleFields, Update
from services.control.domain.rules.edits import Reorder as Move
from services.control.domain.rules.kinds import kinds_of_clients
from services.control.domain.rules.moves import MovePlan, clusters_that_may_lose
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.rules.shadows import shadowed_rules
from tests.unit.control.worlds import rule, rule_set, table

MANY = 300


class Counted:
    """Calls of a function, which still does what it does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.calls = 0
        self._function = function

    def method(self) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            self.calls += 1
            return self._function(*arguments)

        return counting


def of_rules(*rules: ForwardingRule) -> RoutingTable:
    clusters = table().clusters.values()
    return RoutingTable(1, clusters, (RuleVersion(rule, float(place), 1) for place, rule in enumerate(rules)))


def framed(rules: list[ForwardingRule]) -> RoutingTable:
    """The same rules between two new ones."""
    first, last = (ForwardingRule(name, ExactName(name), "c3") for name in ("a-first", "z-last"))
    return of_rules(first, *rules, last)


def test_an_exact_rule_is_compared_with_the_expressions_that_may_match_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(NameRegex.matches)
    monkeypatch.setattr(NameRegex, "matches", counted.method())
    expressions = [ForwardingRule(f"x{n}", NameRegex(f"tenant-{n:03}-.*-events"), "c1") for n in range(MANY)]
    topics = [ForwardingRule(f"t{n}", ExactName(f"tenant-{n:03}-orders"), "c1") for n in range(MANY)]
    covered = ForwardingRule("covered", ExactName("tenant-007-orders-events"), "c1")

    assert shadowed_rules([*expressions, *topics, covered]) == {covered: expressions[7]}
    assert counted.calls <= 3 * MANY


def test_rules_that_stay_in_their_order_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(moves._may_take_from)
    monkeypatch.setattr(moves, "_may_take_from", counted.method())
    rules = [ForwardingRule(f"r{n}", NamePrefix(f"tenant-{n:03}-"), f"c{n % 2 + 1}") for n in range(MANY)]

    assert clusters_that_may_lose(of_rules(*rules), framed(rules)) == set()
    assert counted.calls <= 3 * MANY


def test_conditions_of_rules_that_stay_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(clients_module.implied)
    monkeypatch.setattr(kinds, "implied", counted.method())
    rules = [
        ForwardingRule(f"r{n}", NamePrefix(f"tenant-{n:03}-", client=ClientMatch(client_id=f"shop-{n}")), "c1")
        for n in range(MANY)
    ]
    kinds_of_clients(of_rules(*rules), framed(rules))
    assert counted.calls <= 3 * MANY


async def test_a_command_about_one_rule_makes_no_list_of_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = RuleSet(of_rules(*(ForwardingRule(f"r{n}", ExactName(f"topic-{n:03}"), "c1") for n in range(MANY))), 1)
    listed = Counted(lambda _: ())
    monkeypatch.setattr(living.LivingRules, "rules", property(listed.method()))
    command = changing([Create(rule("first->c1"))], is_small=True, allow_shadowed=False)

    assert (await command(rules)).changed_ids == ["first"]
    assert listed.calls == 0


def test_rules_that_change_their_order_all_count_as_changed() -> None:
    wide, narrow = ForwardingRule("wide", NamePrefix("a"), "c1"), ForwardingRule("narrow", NamePrefix("ab"), "c2")
    assert clusters_that_may_lose(of_rules(narrow, wide), of_rules(wide, narrow)) == {"c1", "c2"}


def test_rules_that_are_created_before_a_default_cluster_give_no_other_rule_a_new_rank() -> None:
    rules, moved = rule_set("?->c1"), list[str]()
    [default] = rules.table.rules
    for number in range(MANY):
        decision = rules.change(Create(rule(f"topic-{number}->c2")))
        assert decision.event is not None
        moved += [each.moved for each in decision.event.changes if each.moved]
        rules = RuleSet(decision.after, rules.revision + 1)
        by_rank = sorted(rules.table.living, key=attrgetter("rank"))
        assert [version.rule for version in by_rank] == [*rules.table.rules]
        assert rules.table.rules[-1] is default
    assert moved == [default.rule_id], "its rank was one of an earlier release"


def steps(work: Callable[[], object]) -> int:
    """How many functions are called, and lines run."""
    taken = 0

    def count(*_: Any) -> Any:
        nonlocal taken
        taken += 1
        return count

    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(None)
    return taken


def decided(rules: RuleSet, edit: Edit) -> RuleSetDecision:
    """A decision and all that follows from it, with two topics that are there."""
    decision = rules.change(edit)
    before, after = decision.before, decision.after
    clusters_that_may_lose(before, after)
    for kind in kinds_of_clients(before, after).looked_at:
        MovePlan(before, after, {"c1": {"topic-00899": 1, "topic-00900.x": 1}}).look_at(kind)
    suspicions(before, after)
    assert decision.changed or decision.removed_ids
    return decision


AMONG_THEM = ["", "~tenant-.*-events->c1", "shop->c1:sold.{topic}", "topic-00007@shop->c2"]
"""An expression, a rename, and a rule about some clients among the rules change nothing of the cost."""


@cache
def rules_of(number: int, others: str) -> RuleSet:
    """Topics and some prefixes; one decision was made, which sorts the rules once for all later ones.

    The tests share them: a decision changes no rule set, it returns the next one.
    """
    names = [f"topic-{each:05}" + (".*" if each % 5 == 0 else "") for each in range(number)]
    rules = rule_set(*filter(None, (others, *(f"{name}->c1" for name in names))))
    return RuleSet(decided(rules, Update("r10", RuleFields(target_cluster="c3"))).after, 8)


@pytest.mark.parametrize("others", AMONG_THEM)
@pytest.mark.parametrize(
    "edit",
    [
        Create(rule("second->c2"), Place.FIRST),
        Create(rule("second->c2"), Before("r900")),
        Create(rule("second->c2"), Place.LAST),
        Update("r900", RuleFields(target_cluster="c2")),
        Update("r901", RuleFields(target_cluster="c2")),
        Move("r900", Before("r890")),
        Move("r901", Before("r890")),
        Remove("r900"),
        Remove("r901"),
    ],
    ids=[
        "created first", "created", "created last", "topic updated", "prefix updated", "topic moved", "prefix moved",
        "topic removed", "prefix removed",
    ],
)  # fmt: skip
def test_no_part_of_an_edit_looks_at_the_rules_that_stay(edit: Edit, others: str) -> None:
    few, many = rules_of(1_800, others), rules_of(18_000, others)
    among_few, among_many = steps(lambda: decided(few, edit)), steps(lambda: decided(many, edit))

    assert among_many < 1.3 * among_few


def test_a_full_place_between_two_rules_costs_the_ranks_of_a_few_rules() -> None:
    rules = rule_set(*(f"topic-{number}->c1" for number in range(MANY)))
    for number in range(MANY):
        decision = rules.change(Create(rule(f"added-{number}->c2"), Before("r150")))
        assert decision.event is not None
        assert sum(bool(each.moved) for each in decision.event.changes) <= 100
        rules = RuleSet(decision.after, rules.revision + 1)
        ranks = [version.rank for version in rules.table.living]
        assert ranks == sorted(set(ranks))
    added = [f"added-{number}" for number in range(MANY)]
    texts = [each.match.text for each in rules.table.rules]
    assert texts == [f"topic-{n}" for n in range(149)] + added + [f"topic-{n}" for n in range(149, MANY)]


EDITED = [f"r{number}" for number in range(1, 13)]
PLACES = st.one_of(st.sampled_from(Place), st.sampled_from(EDITED).map(Before))
EDITS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([*(f"new-{n}" for n in range(6)), "?"]), PLACES),
        st.builds(Move, st.sampled_from(EDITED), PLACES),
        st.builds(Remove, st.sampled_from(EDITED)),
        st.builds(Update, st.sampled_from(EDITED), st.just(RuleFields(target_cluster="c3"))),
    ),
    max_size=6,
)


@given(st.integers(0, 12), st.booleans(), EDITS)
def test_edits_of_a_part_of_the_rules_give_what_edits_of_the_whole_list_give(
    number: int, has_default: bool, edits: list[Any]
) -> None:
    before = rule_set(*(f"t{place}->c1" for place in range(1, number + 1)), *(["?@shop->c1"] if has_default else []))
    wanted, made = list(before.table.rules), list[Edit]()
    for edit in edits:
        if isinstance(edit, tuple):
            edit = Create(rule(f"{edit[0]}->c2", f"made-{edit[0].replace('?', 'default')}"), edit[1])  # noqa: PLW2901
        try:
            _edited(wanted, edit)
        except LookupError:
            continue
        made.append(edit)
    decision = before.change(*made, allow_shadowed=True)
    assert [*decision.after.rules] == sorted(wanted, key=lambda each: isinstance(each.match, UnmatchedTopics))
    ranks = [version.rank for version in decision.after.living]
    assert ranks == sorted(set(ranks))


def _edited(rules: list[ForwardingRule], edit: Edit) -> None:
    """The same edit of a whole list; LookupError when it can't be made."""
    ids = [each.rule_id for each in rules]
    match edit:
        case Create(new, place) if new.rule_id not in ids:
            rules.insert(_place_in(ids, place), new)
        case Move(rule_id, place) if place != Before(rule_id):
            others = [each for each in ids if each != rule_id]
            at = _place_in(others, place)
            rules.insert(at, rules.pop(_place_in(ids, Before(rule_id))))
        case Remove(rule_id):
            rules.pop(_place_in(ids, Before(rule_id)))
        case Update(rule_id, wanted):
            at = _place_in(ids, Before(rule_id))
            rules[at] = wanted.put_on(rules[at])
        case _:
            raise LookupError


def _place_in(ids: list[str], place: Place | Before) -> int:
    match place:
        case Before(rule_id) if rule_id in ids:
            return ids.index(rule_id)
        case Before():
            raise LookupError
        case Place.FIRST:
            return 0
        case _:
            return len(ids)


PATTERNS = ("a", "ab", "abc", "b", "bc", "a*", "ab*", "abc*", "b*", "~.*", "~a.*", "?")


@given(st.permutations(PATTERNS), st.integers(0, len(PATTERNS) - 1), st.sampled_from(Place))
def test_a_created_rule_is_refused_exactly_when_it_brings_a_shadow(order: list[str], known: int, place: Place) -> None:
    before = rule_set(*(f"{pattern}->c1" for pattern in order[:known]))
    create = Create(rule(f"{order[known]}->c2", "new"), place)
    after = before.change(create, allow_shadowed=True).after
    brings_a_shadow = bool(shadowed_rules(after.rules).keys() - shadowed_rules(before.table.rules).keys())
    try:
        before.change(create)
        refused = False
    except NotAllowed:
        refused = True
    assert refused == brings_a_shadow
