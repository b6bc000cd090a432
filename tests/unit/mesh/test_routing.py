"""The routing domain: first match wins, every table follows from the log, visits are counted alike everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.routing import (
    ExactName,
    ForwardingRule,
    InvalidRuleError,
    LogGapError,
    Match,
    NamePrefix,
    NameRegex,
    RoutingState,
    RoutingTable,
    RuleVersion,
    UpstreamCluster,
    fold,
    may_move_topics,
)
from mesh.routing.codec import cluster_to_proto, match_to_proto, rule_to_proto, table_from_proto, table_to_proto
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.rpc import events, routing

C1 = UpstreamCluster("c1", ("127.0.0.1:9092",), ordinal=1, home=True)
C2 = UpstreamCluster("c2", ("127.0.0.1:9093",), ordinal=2)


def table(*rules: tuple[Match, str]) -> RoutingTable:
    versions = [RuleVersion(ForwardingRule(f"r{i}", m, target), float(i), 1) for i, (m, target) in enumerate(rules)]
    return RoutingTable(1, [C1, C2], versions)


class Log:
    """A log that is folded as it is written."""

    def __init__(self) -> None:
        self.state = RoutingState()
        for cluster in (C1, C2):
            registered = events.ClusterRegistered(cluster=cluster_to_proto(cluster))
            self.write(events.Event(cluster_registered=registered))

    def write(self, event: events.Event) -> int:
        event.position = self.state.position + 1
        self.state = fold(self.state, event)
        return event.position

    def rules(self, *changes: events.RuleChange, hold: bool = False) -> int:
        changed = events.RuleSetChanged(changes=changes, needs_hold=hold)
        return self.write(events.Event(rule_set_changed=changed))

    def move(self, rule_id: str, match: Match, target: str) -> None:
        spec = rule_to_proto(ForwardingRule(rule_id, match, target))
        revision = self.rules(events.RuleChange(updated=spec), hold=True)
        self.write(events.Event(rollout_switched=events.RolloutSwitched(revision=revision)))


def created(rule_id: str, match: Match, target: str, rank: float) -> events.RuleChange:
    return events.RuleChange(created=rule_to_proto(ForwardingRule(rule_id, match, target)), rank=rank)


@pytest.mark.parametrize(
    ("topic", "cluster"),
    [("apples", "c1"), ("apples-red", "c2"), ("cherries-1", "c1"), ("cherries-x", None), ("ap", None)],
)
def test_a_topic_lives_where_the_first_rule_that_matches_says(topic: str, cluster: str | None) -> None:
    rules = table((ExactName("apples"), "c1"), (NamePrefix("apples"), "c2"), (NameRegex(r"cherries-\d"), "c1"))
    assert rules.cluster_of(topic) == cluster


def test_order_decides_not_the_kind_or_length_of_the_match() -> None:
    rules = table((NameRegex("a.*"), "c2"), (NamePrefix("app"), "c1"), (ExactName("apples"), "c1"))
    assert rules.cluster_of("apples") == "c2"


@pytest.mark.parametrize(
    ("pattern", "head"),
    [
        ("team-5-.+", "team-5-"),
        (r"eu\.orders\.v\d", "eu.orders.v"),
        ("colou?r", "colo"),
        ("ab*", "a"),
        ("ab{0,2}c", "a"),
        ("ab+", "ab"),
        (r"a\.?b", "a"),
        ("apples|pears", ""),
        ("(?i)apples", ""),
        (r"\Qa.b\E.*", ""),
        (".*", ""),
    ],
)
def test_an_expression_is_looked_up_by_the_plain_text_at_its_start(pattern: str, head: str) -> None:
    assert NameRegex(pattern).head == head


@pytest.mark.parametrize(
    ("pattern", "core"),
    [
        ("(eu|us)-team-5-.+", "-team-5-"),
        (".*-team-5", "-team-5"),
        ("[a-z]+-orders-?v2", "-orders"),
        (r"\w+\.orders\.(v1|v2)", ".orders."),
        ("[]|x]+abc", "abc"),
        ("a{2,3}bcd", "bcd"),
        ("(abc)?def*", "de"),
        ("eu-.*|us-.*", ""),
        (".*", ""),
        ("(?i)x-apples", ""),
        (r"\Qab|c\E-apples", ""),
        ("[[:alpha:]]-xyz+w", "-xyz"),
    ],
)
def test_an_expression_is_looked_up_by_its_longest_plain_text_too(pattern: str, core: str) -> None:
    assert NameRegex(pattern).core == core


@given(st.text("ab-.|()[]*+?{}1,\\^$", max_size=12), st.text("ab-.1", max_size=10))
def test_every_name_that_matches_has_the_plain_text_of_the_expression(pattern: str, name: str) -> None:
    try:
        regex = NameRegex(pattern)
    except InvalidRuleError:
        return
    if regex.matches(name):
        assert name.startswith(regex.head)
        assert regex.core in name


def test_expressions_with_and_without_plain_text_are_found_alike() -> None:
    rules = table((NameRegex("colou?r"), "c1"), (NameRegex("(?i)APPLES"), "c2"), (NameRegex("a.*|b.*"), "c1"))
    assert [rules.cluster_of(name) for name in ("color", "colour", "apples", "apple", "b", "colr")] == [
        "c1", "c1", "c2", "c1", "c1", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "topic", ["mesh.events", "mesh.events-two", "mesh.audit", "mesh.record-positions", "mesh.transactions"]
)
def test_no_rule_leads_to_a_topic_of_the_mesh_itself(topic: str) -> None:
    everything = table((NameRegex(".*"), "c1"))
    assert everything.route(topic) is None
    assert everything.virtual_topic("c1", topic) is None
    renaming = ForwardingRule("r0", NamePrefix("x."), "c1", upstream_topic="{suffix}")
    disguised = RoutingTable(1, [C1], [RuleVersion(renaming, 1.0, 1)])
    assert disguised.route(f"x.{topic}") is None
    assert disguised.virtual_topic("c1", topic) is None


def test_a_rule_to_a_cluster_that_left_routes_nothing() -> None:
    versions = [RuleVersion(ForwardingRule("r", ExactName("apples"), "c9"), 1.0, 1)]
    assert RoutingTable(1, [C1], versions).route("apples") is None


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: ExactName(""), "match.topic"),
        (lambda: ExactName("x" * 250), "match.topic"),
        (lambda: NamePrefix(""), "match.topic_prefix"),
        (lambda: NameRegex("(?=x)"), "match.topic_regex"),
        (lambda: NameRegex("("), "match.topic_regex"),
    ],
)
def test_a_match_that_cannot_be_says_which_field_is_wrong(make: object, field: str) -> None:
    with pytest.raises(InvalidRuleError) as raised:
        make()  # type: ignore[operator]
    assert raised.value.field_name == field


def test_a_change_that_moves_topics_counts_from_its_switch_on() -> None:
    log = Log()
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    spec = rule_to_proto(ForwardingRule("apples", ExactName("apples"), "c2"))
    revision = log.rules(events.RuleChange(updated=spec), hold=True)
    assert log.state.effective.cluster_of("apples") == "c1"
    assert log.state.pending is not None
    assert log.state.pending.cluster_of("apples") == "c2"
    log.write(events.Event(rollout_switched=events.RolloutSwitched(revision=revision)))
    assert (log.state.effective.cluster_of("apples"), log.state.effective.revision) == ("c2", revision)
    assert log.state.pending is None


def test_an_aborted_change_leaves_no_trace_in_the_table() -> None:
    log = Log()
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    before = log.state.effective
    spec = rule_to_proto(ForwardingRule("apples", ExactName("apples"), "c2"))
    revision = log.rules(events.RuleChange(updated=spec), hold=True)
    log.write(events.Event(rollout_aborted=events.RolloutAborted(revision=revision)))
    assert log.state.effective == before
    assert log.state.pending is None


def test_a_route_tells_the_visit_and_where_the_topic_lived_before() -> None:
    log = Log()
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    seen = []
    for target in ("c2", "c1", "c2", "c1"):
        log.move("apples", ExactName("apples"), target)
        route = log.state.effective.route("apples")
        assert route is not None
        seen.append((route.cluster, route.visit, route.before and route.before[:2]))
    assert seen == [("c2", 1, ("c1", 1)), ("c1", 2, ("c2", 1)), ("c2", 2, ("c1", 2)), ("c1", 3, ("c2", 2))]


def test_visits_are_counted_over_different_rules_too() -> None:
    log = Log()
    log.rules(created("all", NameRegex(".*"), "c1", 2.0))
    log.rules(created("apples", ExactName("apples"), "c2", 1.0))
    log.rules(events.RuleChange(removed="apples"))
    apples, bananas = log.state.effective.route("apples"), log.state.effective.route("bananas")
    assert apples is not None
    assert bananas is not None
    assert (apples.cluster, apples.visit, bananas.visit) == ("c1", 2, 1)


def test_time_without_a_route_does_not_end_a_visit() -> None:
    log = Log()
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    log.rules(events.RuleChange(removed="apples"))
    assert log.state.effective.route("apples") is None
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    route = log.state.effective.route("apples")
    assert route is not None
    assert route.visit == 1
    assert route.before is None


def test_revisions_never_go_back_when_a_cluster_changes_during_a_rollout() -> None:
    log = Log()
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    spec = rule_to_proto(ForwardingRule("apples", ExactName("apples"), "c2"))
    revision = log.rules(events.RuleChange(updated=spec), hold=True)
    c3 = UpstreamCluster("c3", ("127.0.0.1:9094",), ordinal=3)
    log.write(events.Event(cluster_registered=events.ClusterRegistered(cluster=cluster_to_proto(c3))))
    removed = log.write(events.Event(cluster_removed=events.ClusterRemoved(cluster_name="c1")))
    log.write(events.Event(rollout_switched=events.RolloutSwitched(revision=revision)))
    assert log.state.effective.revision == removed
    assert list(log.state.effective.clusters) == ["c2", "c3"]
    assert log.state.effective.cluster_of("apples") == "c2"


def test_an_event_that_was_folded_changes_nothing_and_a_gap_is_an_error() -> None:
    log = Log()
    state = log.state
    assert fold(state, events.Event(position=1, cluster_removed=events.ClusterRemoved(cluster_name="c1"))) is state
    with pytest.raises(LogGapError, match="event 9 follows 2: 6 are missing"):
        fold(state, events.Event(position=9))


def test_a_table_survives_the_wire() -> None:
    log = Log()
    log.rules(created("apples", NamePrefix("apples"), "c1", 1.0), created("re", NameRegex("b.*"), "c2", 2.0))
    log.move("apples", NamePrefix("apples"), "c2")
    assert table_from_proto(table_to_proto(log.state.effective)) == log.state.effective


def test_a_table_with_an_unknown_match_is_refused_by_name() -> None:
    message = routing.RoutingTable(rule_versions=[routing.RuleVersion(rule=routing.RuleSpec(rule_id="x"))])
    with pytest.raises(InvalidRuleError, match="one of topic, topic_prefix, topic_regex"):
        table_from_proto(message)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ([], [("a", "c1")], False),
        ([("a", "c1")], [("a", "c1"), ("b", "c2")], False),
        ([("a", "c1")], [("b", "c2"), ("a", "c1")], True),
        ([("a", "c1")], [("a", "c2")], True),
        ([("a", "c1")], [], True),
    ],
)
def test_only_rules_added_behind_all_others_can_move_nothing(
    before: list[tuple[str, str]], after: list[tuple[str, str]], moves: bool
) -> None:
    def of(rules: list[tuple[str, str]]) -> RoutingTable:
        return table(*((ExactName(topic), target) for topic, target in rules))

    assert may_move_topics(of(before), of(after)) is moves


def test_every_match_kind_survives_the_wire() -> None:
    for match in (ExactName("a"), NamePrefix("a"), NameRegex("a+")):
        message = routing.RoutingTable(
            rule_versions=[routing.RuleVersion(rule=routing.RuleSpec(rule_id="r", match=match_to_proto(match)))]
        )
        assert table_from_proto(message).rules[0].match == match


def test_a_state_survives_its_snapshot_a_pending_table_included() -> None:
    log = Log()
    log.rules(created("apples", ExactName("apples"), "c1", 1.0))
    assert state_from_proto(state_to_proto(log.state)) == log.state
    moved = rule_to_proto(ForwardingRule("apples", ExactName("apples"), "c2"))
    log.rules(events.RuleChange(updated=moved), hold=True)
    assert state_from_proto(state_to_proto(log.state)) == log.state
    assert state_from_proto(state_to_proto(RoutingState())) == RoutingState()
