"""How the routing table follows from the event log: one pure function from state and event to state.

Control uses it for its projections and router for the tables that it serves, so both agree by construction.
A rule change that may move topics first makes a *pending* table; RolloutSwitched puts it in force, RolloutAborted
drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from mesh.routing.codec import cluster_from_proto, rule_from_proto
from mesh.routing.rules import ForwardingRule, RuleVersion
from mesh.routing.table import RoutingTable, UpstreamCluster
from mesh.rpc import events

Clusters = dict[str, UpstreamCluster]


class LogGapError(RuntimeError):
    """An event is missing: positions have no gaps, so the reader has lost something and must start again."""


@dataclass(frozen=True, slots=True)
class RoutingState:
    """The table in force, the one that is being rolled out, and the position of the last event folded."""

    effective: RoutingTable = field(default_factory=RoutingTable)
    pending: RoutingTable | None = None
    position: int = 0


def fold(state: RoutingState, event: events.Event) -> RoutingState:
    """The state after `event`. Events at or before the state's position change nothing; a gap raises LogGapError."""
    if event.position <= state.position:
        return state
    if event.position != state.position + 1:
        missing = event.position - state.position - 1
        raise LogGapError(f"event {event.position} follows {state.position}: {missing} are missing")
    position, table = event.position, state.effective
    match event.WhichOneof("payload"):
        case "cluster_registered":
            return _with_cluster(state, position, cluster_from_proto(event.cluster_registered.cluster))
        case "cluster_updated":
            return _with_cluster(state, position, cluster_from_proto(event.cluster_updated.cluster))
        case "cluster_removed":
            return _without_cluster(state, position, event.cluster_removed.cluster_name)
        case "rule_set_changed":
            changed = with_changes(table, position, event.rule_set_changed.changes)
            if event.rule_set_changed.needs_hold:
                return replace(state, pending=changed, position=position)
            return replace(state, effective=changed, position=position)
        case "rollout_switched" if state.pending and state.pending.revision == event.rollout_switched.revision:
            # a cluster that changed meanwhile has its own, later revision: revisions never go back
            revision = max(table.revision, state.pending.revision)
            switched = RoutingTable(revision, state.pending.clusters.values(), state.pending.versions)
            return RoutingState(switched, None, position)
        case "rollout_aborted" if state.pending and state.pending.revision == event.rollout_aborted.revision:
            return replace(state, pending=None, position=position)
        case _:
            return replace(state, position=position)


def _with_cluster(state: RoutingState, position: int, cluster: UpstreamCluster) -> RoutingState:
    return _with_clusters(state, position, lambda known: {**known, cluster.name: cluster})


def _without_cluster(state: RoutingState, position: int, name: str) -> RoutingState:
    return _with_clusters(state, position, lambda known: {n: cluster for n, cluster in known.items() if n != name})


def _with_clusters(state: RoutingState, position: int, change: Callable[[Clusters], Clusters]) -> RoutingState:
    """Clusters change at once, in the table in force and in the one to come."""

    def changed(table: RoutingTable, revision: int) -> RoutingTable:
        return RoutingTable(revision, change(table.clusters).values(), table.versions)

    pending = state.pending and changed(state.pending, state.pending.revision)
    return RoutingState(changed(state.effective, position), pending, position)


def with_changes(table: RoutingTable, revision: int, changes: Iterable[events.RuleChange]) -> RoutingTable:
    """The table of `revision`: `changes` applied to `table` in their order, all at once."""
    living = {version.rule.rule_id: version for version in table.living}
    ended: list[RuleVersion] = [version for version in table.versions if not version.alive]

    def end(rule_id: str) -> RuleVersion:
        version = living.pop(rule_id)
        if version.from_revision < revision:  # a version born and ended by the same event has decided nothing
            ended.append(replace(version, until_revision=revision))
        return version

    def begin(rule: ForwardingRule, rank: float) -> None:
        living[rule.rule_id] = RuleVersion(rule, rank, revision)

    for change in changes:
        match change.WhichOneof("kind"):
            case "created":
                begin(rule_from_proto(change.created), change.rank)
            case "updated":
                begin(rule_from_proto(change.updated), end(change.updated.rule_id).rank)
            case "moved":
                begin(end(change.moved).rule, change.rank)
            case "removed":
                end(change.removed)
            case unknown:
                raise ValueError(f"revision {revision}: rule change of unknown kind {unknown!r}")
    return RoutingTable(revision, table.clusters.values(), [*ended, *living.values()])
