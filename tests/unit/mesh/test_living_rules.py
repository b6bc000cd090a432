"""Living rules that follow change by change are the same as those that are sorted from all versions."""

from __future__ import annotations

from operator import attrgetter, itemgetter

from hypothesis import given
from hypothesis import strategies as st

from mesh.routing import ExactName, ForwardingRule, NamePrefix, NameRegex, RuleVersion, UnmatchedTopics
from mesh.routing import ordered as ordered_module
from mesh.routing.living import LivingRules, versions_of
from mesh.routing.ordered import Ordered
from mesh.routing.rules import Match

NAMES = st.text("ab", min_size=1, max_size=4)
MATCHES: st.SearchStrategy[Match] = st.one_of(
    NAMES.map(ExactName),
    NAMES.map(NamePrefix),
    NAMES.map(lambda text: NameRegex(f"{text}.*")),
    st.just(NameRegex(".*")),
    st.just(UnmatchedTopics()),
)
RULES = st.builds(ForwardingRule, st.sampled_from("pqrstuvw"), MATCHES, st.just("c1"))
RANKS = st.integers(1, 6).map(float)
"""So few that several rules get one rank, as in old logs."""
CHANGES = st.lists(st.lists(st.tuples(RULES, RANKS, st.booleans()), max_size=6), max_size=8)


def sorted_anew(alive: dict[str, RuleVersion]) -> tuple[RuleVersion, ...]:
    """The order as a sort of all versions gives it: by rank, then by revision, default clusters last."""
    ordered = sorted(alive.values(), key=attrgetter("rank", "from_revision"))
    return tuple(sorted(ordered, key=lambda version: isinstance(version.rule.match, UnmatchedTopics)))


def may_share_a_name(rule: ForwardingRule, heads: set[str]) -> bool:
    """The same by a look at every rule."""
    return any(rule.match.head.startswith(head) or head.startswith(rule.match.head) for head in heads)


@given(CHANGES, st.sets(st.text("ab", max_size=4)), st.booleans())
def test_rules_after_changes_are_those_that_a_sort_of_all_versions_gives(
    changes: list[list[tuple[ForwardingRule, float, bool]]], heads: set[str], asked_each_time: bool
) -> None:
    rules, alive = LivingRules.of(()), dict[str, RuleVersion]()
    for revision, change in enumerate(changes, 1):
        touched: dict[str, RuleVersion | None] = {
            rule.rule_id: RuleVersion(rule, rank, revision) if stays else None for rule, rank, stays in change
        }
        rules = rules.changed(touched)
        alive |= {rule_id: version for rule_id, version in touched.items() if version is not None}
        alive = {rule_id: version for rule_id, version in alive.items() if touched.get(rule_id, version) is not None}
        if asked_each_time:
            rules.near(heads)

    assert [version.order for version in rules.versions] == [version.order for version in sorted_anew(alive)]
    assert {id(version) for version in rules.versions} == {id(version) for version in alive.values()}
    assert rules.versions == versions_of(rules, ())
    assert rules.rules == tuple(version.rule for version in rules.versions)
    assert {rule_id: rules.get(rule_id) for rule_id in "pqrstuvwx"} == {**dict.fromkeys("pqrstuvwx"), **alive}
    assert [rules.place_of(version) for version in rules.versions] == [*range(len(rules.versions))]
    assert rules.near(heads) == [rule for rule in rules.rules if may_share_a_name(rule, heads)]


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60), st.integers(0, 8), st.integers(0, 40))
def test_what_follows_change_by_change_is_what_a_sort_gives(
    changes: list[tuple[int, bool]], most: int, key: int
) -> None:
    kept, ordered_module.PART = ordered_module.PART, 2
    placed, ordered_module.MOST_PLACED = ordered_module.MOST_PLACED, most
    try:
        items, known = Ordered[tuple[int]]((), itemgetter(0)), dict[int, tuple[int]]()
        for number, stays in changes:
            before, gone = items, [known.pop(number)] if number in known else []
            come = [(number,)] if stays else []
            known.update((each[0], each) for each in come)
            items = before.changed(gone, come)
            start, end = before.alike(items)
            old, new = list(before), list(items)
            assert all(one is other for one, other in zip(old[:start], new[:start], strict=True))
            assert all(one is other for one, other in zip(old[len(old) - end :], new[len(new) - end :], strict=True))
            assert start + end <= min(len(old), len(new))
            assert max(len(old), len(new)) - start - end <= 1 or (gone and come)
    finally:
        ordered_module.PART, ordered_module.MOST_PLACED = kept, placed
    wanted = sorted(known.values())
    assert (list(items), len(items)) == (wanted, len(wanted))
    assert items.find(key) is known.get(key)
    assert list(items.since(key)) == [each for each in wanted if each >= (key,)]
    assert [items.place_of(each) for each in wanted] == [*range(len(wanted))]
    assert [list(items.behind(start)) for start in range(50)] == [wanted[start:] for start in range(50)]
    assert [items.between(start, start + 3) for start in range(50)] == [
        wanted[start : start + 3] for start in range(50)
    ]
