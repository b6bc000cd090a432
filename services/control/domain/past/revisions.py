"""The mesh at an earlier revision, the differences between two revisions, and the places of topics then.

Such a view is made of rule versions, and of the last events of clusters, record rules and the mesh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mesh.order import staying_in_order
from mesh.record_rules import RecordRules, fold_record_rules
from mesh.routing import ForwardingRule, Place, RoutingState, RoutingTable, RuleVersion, UpstreamCluster
from mesh.routing.codec import cluster_from_proto
from mesh.rpc import events
from services.control.domain.errors import InvalidField
from services.control.domain.rules.checks import INTERNAL_PREFIX
from services.control.domain.view import MeshView, Origin


def require_past(revision: int, position: int, field: str = "revision") -> None:
    """Refuses a number that is no revision of the mesh so far; the log of the mesh ends at `position`."""
    if revision < 1:
        raise InvalidField(field, f"is {revision}; revisions are positions of events, counted from 1")
    if revision > position:
        raise InvalidField(field, f"{revision} is still to come: the log ends at {position}")


def mesh_of(revision: int, rules: Iterable[tuple[RuleVersion, Origin]], aggregates: Sequence[events.Event]) -> MeshView:
    """The mesh at a revision. `aggregates`: the last event of each kind in each stream up to there, oldest first."""
    versions = list(rules)
    clusters, revisions = _clusters(aggregates)
    switches = [event for event in aggregates if event.WhichOneof("payload") in ("mesh_frozen", "mesh_thawed")]
    frozen = switches[-1] if switches and switches[-1].HasField("mesh_frozen") else None
    return MeshView(
        state=RoutingState(RoutingTable(revision, clusters, [version for version, _ in versions]), None, revision),
        cluster_revisions=revisions,
        rule_origins={version.rule.rule_id: origin for version, origin in versions},
        record_rules=_record_rules(aggregates),
        frozen=frozen,
    )


def _clusters(aggregates: Iterable[events.Event]) -> tuple[list[UpstreamCluster], dict[str, int]]:
    clusters: dict[str, UpstreamCluster] = {}
    revisions: dict[str, int] = {}
    for event in aggregates:
        match event.WhichOneof("payload"):
            case "cluster_registered":
                cluster = cluster_from_proto(event.cluster_registered.cluster)
            case "cluster_updated":
                cluster = cluster_from_proto(event.cluster_updated.cluster)
            case "cluster_removed":
                clusters.pop(event.cluster_removed.cluster_name, None)
                revisions.pop(event.cluster_removed.cluster_name, None)
                continue
            case _:
                continue
        clusters[cluster.name], revisions[cluster.name] = cluster, event.position
    return list(clusters.values()), revisions


def _record_rules(aggregates: Sequence[events.Event]) -> RecordRules:
    """The record rules. If a rule was removed and created again, only events from its last creation on count."""
    created = {event.stream: event.position for event in aggregates if event.HasField("record_rule_created")}
    rules: RecordRules = {}
    for event in aggregates:
        if event.position >= created.get(event.stream, event.position + 1):
            rules = fold_record_rules(rules, event)
    return rules


@dataclass(frozen=True, slots=True)
class Differences:
    """The names of rules and clusters that differ between two revisions."""

    rules: tuple[str, ...]
    """In the order of the later revision; removed rules are last."""
    clusters: tuple[str, ...]
    """In the order of their ordinals."""
    record_rules: tuple[str, ...]


def differences(before: MeshView, after: MeshView) -> Differences:
    """The differences between two views.

    A rule also differs when a change moved it. Rules that it passed do not differ for that reason.
    """
    old, new = before.state.effective, after.state.effective
    known = {**old.clusters, **new.clusters}
    changed = [name for name, it in known.items() if old.clusters.get(name) != new.clusters.get(name)]
    record_rules = sorted(before.record_rules.keys() | after.record_rules.keys())
    return Differences(
        rules=tuple(_changed_rules(old.rules, new.rules)),
        clusters=tuple(sorted(changed, key=lambda name: known[name].ordinal)),
        record_rules=tuple(
            name for name in record_rules if _record(before.record_rules, name) != _record(after.record_rules, name)
        ),
    )


def _changed_rules(old: Sequence[ForwardingRule], new: Sequence[ForwardingRule]) -> list[str]:
    before = {rule.rule_id: (float(place), rule) for place, rule in enumerate(old)}
    stays = staying_in_order([before[rule.rule_id][0] if rule.rule_id in before else None for rule in new])
    changed = [
        rule.rule_id for rule, stayed in zip(new, stays, strict=True) if not stayed or before[rule.rule_id][1] != rule
    ]
    left = {rule.rule_id for rule in new}
    return changed + [rule_id for rule_id in before if rule_id not in left]


def _record(rules: RecordRules, name: str) -> object:
    rule = rules.get(name)
    return None if rule is None else (rule.spec, rule.paused)


@dataclass(frozen=True, slots=True)
class Moved:
    """A topic whose place differs before and after; None for no place. `partitions`: the number now at `source`."""

    topic: str
    source: Place | None
    target: Place | None
    partitions: int


def moved_topics(before: RoutingTable, after: RoutingTable, topics: Mapping[str, Mapping[str, int]]) -> list[Moved]:
    """Existing topics (`topics`: cluster -> topic there -> partitions) whose place differs before and after."""
    names = {
        table.virtual_topic(cluster, upstream_topic)
        for table in (before, after)
        for cluster in topics.keys() & table.clusters.keys()
        for upstream_topic in topics[cluster]
        if not upstream_topic.startswith(INTERNAL_PREFIX)
    }
    moved: list[Moved] = []
    for topic in sorted(name for name in names if name is not None):
        source, target = place_of(before, topic), place_of(after, topic)
        if source != target:
            partitions = 0 if source is None else topics.get(source.cluster, {}).get(source.upstream_topic, 0)
            moved.append(Moved(topic, source, target, partitions))
    return moved


def place_of(table: RoutingTable, topic: str) -> Place | None:
    route = table.route(topic)
    return None if route is None else Place(route.cluster, route.upstream_topic)
