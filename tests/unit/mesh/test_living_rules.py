"""Living rules that follow change by change are the same as those that are sorted from all versions."""

from __future__ import annotations

from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from mesh.routing import ExactName, ForwardingRule, NamePrefix, NameRegex, RuleVersion, UnmatchedTopics
from mesh.routing import living as living_module
from mesh.routing.living import LivingRules, in_order
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
    assert rules.versions == in_order(rules.versions)
    assert rules.rules == tuple(version.rule for version in rules.versions)
    assert rules.ids == tuple(rule.rule_id for rule in rules.rules)
    assert rules.by_id == alive
    assert [rules.place_of(version) for version in rules.versions] == [*range(len(rules.versions))]
    assert rules.near(heads) == [rule for rule in rules.rules if may_share_a_name(rule, heads)]


@given(st.permutations([ForwardingRule(f"r{n}", ExactName(f"a{n % 7}"), "c1") for n in range(12)]))
def test_rules_are_found_by_how_names_begin_after_a_change_of_many(order: list[ForwardingRule]) -> None:
    before = LivingRules.of(())
    before.near({"a"})
    most, living_module.MOST_PLACED = living_module.MOST_PLACED, 3
    try:
        after = before.changed({rule.rule_id: RuleVersion(rule, float(n), 1) for n, rule in enumerate(order)})
    finally:
        living_module.MOST_PLACED = most

    assert after.near({"a3"}) == [rule for rule in order if rule.match.text == "a3"]
