"""How the routing table follows from the event log: one pure function from state and event to state.

Control uses it for its projections and router for the tables that it serves, so both agree by construction.
A rule change that may move topics first makes a *pending* table; RolloutSwitched puts it in force, RolloutAborted
drops it. One that is tried by some clients first (a canary) is pending just so.

`fold` is for one event. A `Folding` is for many: it changes its tables in place, and builds the state on request. A
million events take as long as a million small changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from mesh.routing.canary import Canary
from mesh.routing.clusters import UpstreamCluster
from mesh.routing.codec import cluster_from_proto
from mesh.routing.history import RuleHistory
from mesh.routing.policies import POLICY_EVENTS, PolicyDrafts
from mesh.routing.table import RoutingTable
from mesh.rpc import events, topic_moves


class LogGapError(RuntimeError):
    """An event is missing: positions have no gaps, so the reader has lost something and must start again."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The producers of a topic at the cut of its move, for gateways that switch to `revision`."""

    revision: int
    producers: topic_moves.TopicMoveProducers


@dataclass(frozen=True, slots=True)
class RoutingState:
    """The table in force, the one that is being rolled out, and the position of the last event folded."""

    effective: RoutingTable = field(default_factory=RoutingTable)
    pending: RoutingTable | None = None
    position: int = 0
    canary: Canary | None = None
    """The clients that try the pending table; None where data planes hold for that table."""
    handover: Handover | None = field(default=None, compare=False)
    """That of the last rollout. Snapshots lack it: without it a gateway asks the topic's last cluster."""


def fold(state: RoutingState, event: events.Event) -> RoutingState:
    """The state after `event`. Events at or before the state's position change nothing; a gap raises LogGapError."""
    folding = Folding(state)
    folding.fold(event)
    return folding.state


def with_changes(table: RoutingTable, revision: int, changes: Iterable[events.RuleChange]) -> RoutingTable:
    """The table of `revision`: `changes` applied to `table` in their order, all at once."""
    table.topics.sort()  # at the first time; tables that follow carry it on
    draft = _Draft(table)
    draft.change_rules(revision, changes)
    return draft.table


def came_into_force(revision: int, table: RoutingTable) -> bool:
    """Whether the table rests on the change of `revision`: rule versions or pasts begin or end at it."""
    known = table.indexes.revisions
    if known is not None:
        return known[revision] > 0
    versions = any(revision in (version.from_revision, version.until_revision) for version in table.versions)
    return versions or any(past.until_revision == revision for past in table.pasts)


def is_pending(change: events.RuleSetChanged) -> bool:
    """Whether the change counts only from its RolloutSwitched on."""
    return change.needs_hold or change.HasField("canary")


class Folding:
    """A state that is carried on from event to event. After an error it is of no use any more."""

    def __init__(self, state: RoutingState) -> None:
        self.position = state.position
        self._state: RoutingState | None = state
        self._effective = _Draft(state.effective)
        self._handover = state.handover
        self._rollout = (
            None if state.pending is None else _Rollout.of(state.pending, state.canary, self._effective.policies)
        )

    @property
    def state(self) -> RoutingState:
        """The state now. A part that no event has changed since the last call is the same object."""
        if self._state is None:
            pending = None if self._rollout is None else self._rollout.draft_on(self._effective).table
            canary = None if self._rollout is None else self._rollout.canary
            self._state = RoutingState(self._effective.table, pending, self.position, canary, self._handover)
        elif self._state.position != self.position:
            self._state = replace(self._state, position=self.position)
        return self._state

    def fold(self, event: events.Event) -> None:
        """As `fold`."""
        if event.position <= self.position:
            return
        if event.position != self.position + 1:
            missing = event.position - self.position - 1
            raise LogGapError(f"event {event.position} follows {self.position}: {missing} are missing")
        self.position = event.position
        match event.WhichOneof("payload"):
            case kind if kind in POLICY_EVENTS:
                self._change_policies(event)
            case "cluster_registered":
                self._with_cluster(cluster_from_proto(event.cluster_registered.cluster))
            case "cluster_updated":
                self._with_cluster(cluster_from_proto(event.cluster_updated.cluster))
            case "cluster_removed":
                self._without_cluster(event.cluster_removed.cluster_name)
            case "rule_set_changed":
                self._change_rules(event.rule_set_changed)
            case "topic_move_cut_reached":
                if event.topic_move_cut_reached.HasField("producers"):
                    self._hand_over(event.topic_move_cut_reached.producers)
            case "fail_over_held":
                self._hand_over(topic_moves.TopicMoveProducers(source_cluster=event.fail_over_held.source_cluster))
            case "rollout_switched":
                self._switch(event.rollout_switched.revision)
            case "rollout_aborted":
                self._abort(event.rollout_aborted.revision)

    def _with_cluster(self, cluster: UpstreamCluster) -> None:
        self._change_clusters({**self._effective.clusters, cluster.name: cluster})

    def _without_cluster(self, name: str) -> None:
        self._change_clusters({n: cluster for n, cluster in self._effective.clusters.items() if n != name})

    def _change_clusters(self, clusters: dict[str, UpstreamCluster]) -> None:
        """Clusters change at once, in the table in force and in the one to come."""
        self._effective.change_clusters(self.position, clusters)
        if self._rollout is not None:
            self._rollout.change_clusters(clusters)
        self._state = None

    def _change_policies(self, event: events.Event) -> None:
        """Policies change at once, in the table in force and in the one to come."""
        self._effective.change_policies(self.position, event)
        if self._rollout is not None:
            self._rollout.change_policies()
        self._state = None

    def _change_rules(self, change: events.RuleSetChanged) -> None:
        if is_pending(change):
            canary = Canary.of(change.canary) if change.HasField("canary") else None
            self._rollout = _Rollout(self.position, tuple(change.changes), canary)
            self._handover = None
        else:
            if self._rollout is not None:
                self._rollout.draft_on(self._effective)  # as the rules were when it was decided
            self._effective.change_rules(self.position, change.changes)
        self._state = None

    def _hand_over(self, producers: topic_moves.TopicMoveProducers) -> None:
        if self._rollout is not None:
            self._handover = Handover(self._rollout.revision, producers)
            self._state = None

    def _switch(self, revision: int) -> None:
        rollout = self._rollout
        if rollout is None or rollout.revision != revision:
            return
        # a cluster that changed meanwhile has its own, later revision: revisions never go back
        revision = max(self._effective.revision, rollout.revision)
        self._effective = rollout.switched(self._effective)
        self._effective.revision = revision
        self._rollout = self._state = None

    def _abort(self, revision: int) -> None:
        if self._rollout is not None and self._rollout.revision == revision:
            self._rollout = self._state = None


class _Draft:
    """A table that is being changed: the rules in place, the table made anew when it is asked for."""

    def __init__(self, table: RoutingTable, policies: PolicyDrafts | None = None) -> None:
        """`policies`: those of another draft, which has the same at each time."""
        self._table: RoutingTable | None = table
        self._revision = table.revision
        self.clusters = table.clusters
        self.policies = PolicyDrafts(table.policies) if policies is None else policies
        self._rules: RoutingTable | RuleHistory = table

    @property
    def revision(self) -> int:
        return self._revision

    @revision.setter
    def revision(self, revision: int) -> None:
        if revision != self._revision:
            self._revision, self._table = revision, None

    @property
    def table(self) -> RoutingTable:
        if self._table is None:
            policies = self.policies.policies
            self._table = self._rules = RoutingTable.resting_on(self.revision, self.clusters, self._rules, policies)
        return self._table

    def change_clusters(self, revision: int, clusters: dict[str, UpstreamCluster]) -> None:
        self._revision, self.clusters, self._table = revision, clusters, None

    def change_policies(self, revision: int, event: events.Event) -> None:
        self.policies.change(event)
        self.forget_table(revision)

    def forget_table(self, revision: int) -> None:
        """The policies have changed."""
        self._revision, self._table = revision, None

    def change_rules(self, revision: int, changes: Iterable[events.RuleChange]) -> None:
        if not isinstance(self._rules, RuleHistory):
            self._rules = RuleHistory(self._rules)
        self._rules.change(revision, changes)
        self._revision, self._table = revision, None


class _Rollout:
    """A change that does not count yet. It is applied to the rules as they were when it was decided, as late as can be:
    when somebody wants to see the table, when those rules change, or at the switch."""

    def __init__(self, revision: int, changes: Sequence[events.RuleChange], canary: Canary | None) -> None:
        self.revision = revision
        self.canary = canary
        self._changes = changes
        self._draft: _Draft | None = None

    @classmethod
    def of(cls, table: RoutingTable, canary: Canary | None, policies: PolicyDrafts) -> _Rollout:
        rollout = cls(table.revision, (), canary)
        rollout._draft = _Draft(table, policies)
        return rollout

    def draft_on(self, effective: _Draft) -> _Draft:
        """The table to come."""
        if self._draft is None:
            self._draft = _Draft(effective.table, effective.policies)
            self._draft.change_rules(self.revision, self._changes)
        return self._draft

    def switched(self, effective: _Draft) -> _Draft:
        """The table that has come; it takes the place of the one in force."""
        if self._draft is None:
            effective.change_rules(self.revision, self._changes)
            return effective
        return self._draft

    def change_clusters(self, clusters: dict[str, UpstreamCluster]) -> None:
        if self._draft is not None:
            self._draft.change_clusters(self.revision, clusters)

    def change_policies(self) -> None:
        """The policies of the table in force have changed."""
        if self._draft is not None:
            self._draft.forget_table(self.revision)
