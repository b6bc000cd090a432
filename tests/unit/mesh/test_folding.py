"""However a log is folded, in one go, event by event, from a snapshot: the state is the same, and no visit is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.routing import (
    ClientIdentity,
    ClientMatch,
    ExactName,
    Folding,
    ForwardingRule,
    Match,
    NamePrefix,
    NameRegex,
    Place,
    RoutingState,
    RoutingTable,
    RuleVersion,
    Stay,
    Subject,
    UnmatchedTopics,
    UpstreamCluster,
    fold,
)
from mesh.routing.codec import cluster_to_proto, rule_from_proto, rule_to_proto
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.rpc import events, snapshots
from tests.fixtures.sweeps import REPEAT

TOPICS = ("a", "ab", "abc", "ac", "b", "bc")
PICKERS, OTHERS = ClientIdentity(client_id="picker"), ClientIdentity(client_id="cook")
ONLY_PICKERS = ClientMatch(client_id="picker")
MATCHES: tuple[Match, ...] = (
    *map(ExactName, ("a", "ab", "bc")),
    *map(NamePrefix, ("a", "ab", "b")),
    *map(NameRegex, (".*", "a.*", "ab?", ".+c", "b|a.*c")),
    UnmatchedTopics(),
    ExactName("ab", client=ONLY_PICKERS),
    NamePrefix("a", client=ONLY_PICKERS),
    NamePrefix("g", Subject.GROUP),
)
CLUSTERS = ("c1", "c2", "c3")


def cluster(name: str, port: int = 9092) -> events.Event:
    spec = UpstreamCluster(name, (f"127.0.0.1:{port}",), ordinal=int(name[1:]))
    return events.Event(cluster_registered=events.ClusterRegistered(cluster=cluster_to_proto(spec)))


@dataclass
class Writer:
    """Writes logs as control would: only changes that fit, one rollout at a time."""

    log: list[events.Event] = field(default_factory=list)
    rules: dict[str, Match] = field(default_factory=dict)
    wanted: dict[str, Match] | None = None
    """Of the rollout that is going on."""
    rollout: int = 0

    def write(self, event: events.Event) -> int:
        event.position = len(self.log) + 1
        self.log.append(event)
        return event.position

    def change(self, changes: Iterable[events.RuleChange], rules: dict[str, Match], hold: bool) -> None:
        position = self.write(events.Event(rule_set_changed=events.RuleSetChanged(changes=changes, needs_hold=hold)))
        if hold:
            self.wanted, self.rollout = rules, position
        else:
            self.rules = rules

    def end(self, switched: bool) -> None:
        if switched and self.wanted is not None:
            self.rules = self.wanted
            self.write(events.Event(rollout_switched=events.RolloutSwitched(revision=self.rollout)))
        else:
            self.write(events.Event(rollout_aborted=events.RolloutAborted(revision=self.rollout)))
        self.wanted = None


@st.composite
def logs(draw: st.DrawFn) -> list[events.Event]:
    """Some rules, changed often."""
    writer = Writer()
    for name in CLUSTERS:
        writer.write(cluster(name))
    for _ in range(draw(st.integers(1, 25))):
        kinds = ["instance", "cluster"] + (["switch", "abort"] if writer.wanted is not None else ["rules"] * 6)
        match draw(st.sampled_from(kinds)):
            case "instance":
                writer.write(events.Event(consumer_instance_removed=events.ConsumerInstanceRemoved()))
            case "cluster":
                writer.write(cluster(draw(st.sampled_from(CLUSTERS)), draw(st.integers(1, 9))))
            case "switch":
                writer.end(switched=True)
            case "abort":
                writer.end(switched=False)
            case _:
                rules = dict(writer.rules)
                changes = [draw(rule_changes(rules, len(writer.log) + n / 4)) for n in range(draw(st.integers(1, 3)))]
                writer.change(changes, rules, draw(st.booleans()))
    return writer.log


@st.composite
def rule_changes(draw: st.DrawFn, rules: dict[str, Match], number: float) -> events.RuleChange:
    """A change that fits the rules; it is applied to them. No two numbers are equal, as no two ranks are."""
    free = [match for match in MATCHES if match not in rules.values()]
    rank = draw(st.integers(0, 9)) + number / 1000
    kind = draw(st.sampled_from(["created", "updated", "updated", "moved", "removed"])) if rules else "created"
    if kind == "created":
        rule_id = f"r{next(number for number in range(99) if f'r{number}' not in rules)}"
        rules[rule_id] = draw(st.sampled_from(free))
        return events.RuleChange(created=rule_to_proto(draw(specs(rule_id, rules[rule_id]))), rank=rank)
    rule_id = draw(st.sampled_from(sorted(rules)))
    if kind == "updated":
        rules[rule_id] = draw(st.sampled_from([rules[rule_id]] * 8 + free))
        return events.RuleChange(updated=rule_to_proto(draw(specs(rule_id, rules[rule_id]))))
    if kind == "moved":
        return events.RuleChange(moved=rule_id, rank=rank)
    del rules[rule_id]
    return events.RuleChange(removed=rule_id)


@st.composite
def specs(draw: st.DrawFn, rule_id: str, match: Match) -> ForwardingRule:
    templates = ["", "", "", "x.{topic}"] if match.subject is Subject.TOPIC else [""]
    return ForwardingRule(rule_id, match, draw(st.sampled_from(CLUSTERS)), draw(st.sampled_from(templates)))


class WholeHistory:
    """What the fold has to come to: the versions of all rules, none forgotten, and each topic's way through them."""

    def __init__(self) -> None:
        self.versions: list[RuleVersion] = []
        self.rollout: tuple[int, list[RuleVersion]] | None = None

    def read(self, event: events.Event) -> None:
        match event.WhichOneof("payload"):
            case "rule_set_changed":
                changed = list(self.versions)
                for change in event.rule_set_changed.changes:
                    apply(changed, change, event.position)
                if event.rule_set_changed.needs_hold:
                    self.rollout = event.position, changed
                else:
                    self.versions = changed
            case "rollout_switched" if self.rollout:
                self.versions, self.rollout = self.rollout[1], None
            case "rollout_aborted":
                self.rollout = None

    def way(self, topic: str, client: ClientIdentity) -> list[Place]:
        """Where the topic has lived, without repeats in a row."""
        matching = [
            version
            for version in self.versions
            if (condition := version.rule.match.client) is None or condition.holds_for(client)
            if version.rule.match.subject is Subject.TOPIC and version.rule.match.matches(topic)
        ]
        way: list[Place] = []
        for revision in sorted({v.from_revision for v in matching} | {v.until_revision or 0 for v in matching}):
            winner = min((v for v in matching if v.counts_at(revision)), key=lambda v: v.order, default=None)
            if winner is not None:
                place = Place(winner.rule.target_cluster, winner.rule.upstream_name(topic))
                if way[-1:] != [place]:
                    way.append(place)
        return way


def apply(versions: list[RuleVersion], change: events.RuleChange, revision: int) -> None:
    kind = change.WhichOneof("kind")
    spec = change.created if kind == "created" else change.updated if kind == "updated" else None
    rule_id = spec.rule_id if spec else change.moved or change.removed
    old = next((v for v in versions if v.alive and v.rule.rule_id == rule_id), None)
    if old is not None:
        versions.remove(old)
        if old.from_revision < revision:
            versions.append(RuleVersion(old.rule, old.rank, old.from_revision, revision))
    if kind != "removed":
        rule = rule_from_proto(spec) if spec else old.rule if old else None
        assert rule is not None
        versions.append(RuleVersion(rule, old.rank if old and kind == "updated" else change.rank, revision))


def seen(table: RoutingTable, client: ClientIdentity) -> Iterator[tuple[str, tuple[Place, int, Stay | None] | None]]:
    """Each topic with its place, the visit and the stay before."""
    of_client = table.for_client(client)
    for topic in TOPICS:
        route = of_client.route(topic)
        yield topic, None if route is None else (Place(route.cluster, route.upstream_topic), route.visit, route.before)


@settings(max_examples=40 * REPEAT, deadline=None)
@given(logs(), st.data())
def test_a_log_gives_one_state_however_it_is_folded(log: list[events.Event], data: st.DataObject) -> None:
    in_one_go = Folding(RoutingState())
    for event in log:
        in_one_go.fold(event)
    one_by_one = RoutingState()
    middle = data.draw(st.integers(0, len(log)))
    for event in log:
        one_by_one = fold(one_by_one, event)
        if event.position == middle:
            message = state_to_proto(one_by_one).SerializeToString()
            from_snapshot = Folding(state_from_proto(snapshots.RoutingState.FromString(message)))
    assert in_one_go.state == one_by_one
    if middle:
        for event in log:
            from_snapshot.fold(event)
            if data.draw(st.booleans()):
                assert from_snapshot.state.position >= event.position  # a look at it changes nothing
        assert from_snapshot.state == one_by_one


@settings(max_examples=40 * REPEAT, deadline=None)
@given(logs())
def test_what_is_counted_up_is_what_the_whole_history_says(log: list[events.Event]) -> None:
    state, history = RoutingState(), WholeHistory()
    for event in log:
        state = fold(state, event)
        history.read(event)
        for client in (PICKERS, OTHERS):
            for topic, found in seen(state.effective, client):
                if found is None:
                    continue
                place, visit, before = found
                way = history.way(topic, client)
                assert (place, visit) == (way[-1], way.count(place)), (topic, way)
                last = way[-2] if len(way) > 1 else None
                assert before == (last and Stay(last.cluster, way[:-1].count(last), last.upstream_topic))


@pytest.mark.parametrize("match", [ExactName("apples"), NamePrefix("fruit."), NameRegex("fruit.+"), UnmatchedTopics()])
def test_a_rule_that_moves_a_thousand_times_leaves_one_count_for_each_place(match: Match) -> None:
    writer = Writer()
    writer.change([created("other", ExactName("pears"), "c1")], {}, hold=False)
    writer.change([created("moving", match, "c1")], {}, hold=False)
    for number in range(1000):
        spec = rule_to_proto(ForwardingRule("moving", match, CLUSTERS[number % 3]))
        writer.change([events.RuleChange(updated=spec)], {}, hold=False)
    folding = Folding(RoutingState())
    for event in writer.log:
        folding.fold(event)
    table = folding.state.effective
    if isinstance(match, UnmatchedTopics):  # pears are matched too, and might come to live by it
        assert len(table.versions) == 2 + 1000
    else:
        assert len(table.versions) == 2
        assert [(stay.cluster, stay.visit) for stay in table.pasts[0].stays] == [("c1", 333), ("c2", 333), ("c3", 333)]


def test_rules_that_are_not_about_topics_have_no_past() -> None:
    writer = Writer()
    writer.change([created("g", NamePrefix("g", Subject.GROUP), "c1")], {}, hold=False)
    for number in range(9):
        spec = rule_to_proto(ForwardingRule("g", NamePrefix("g", Subject.GROUP), CLUSTERS[number % 3]))
        writer.change([events.RuleChange(updated=spec)], {}, hold=False)
    state = RoutingState()
    for event in writer.log:
        state = fold(state, event)
    assert (len(state.effective.versions), state.effective.pasts) == (1, ())


def created(rule_id: str, match: Match, target: str) -> events.RuleChange:
    return events.RuleChange(created=rule_to_proto(ForwardingRule(rule_id, match, target)), rank=1.0)
