"""Projections: the mesh as tables, kept in the same transaction as the events they follow from. For people, reports
and Spark.

Control itself answers from its view in memory. A table holds either what the view holds (`OF_VIEWS`: written as the
difference between the view before and after), or what single events say (`changes_by`). Both are pure, so that
`kafka-mesh verify-log` comes to the same rows from the log alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from operator import attrgetter
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from sqlalchemy import Table

from mesh.record_rules import RecordRule
from mesh.routing import NodeView, RuleVersion, UpstreamCluster, field_of, is_pending
from mesh.routing.codec import client_match_to_proto, cluster_to_proto
from mesh.routing.ordered import Ordered
from mesh.rpc import events
from services.control.domain.replays.course import totals_of
from services.control.domain.replays.replays import WORDS
from services.control.domain.view import MeshView
from services.control.store import rule_versions, schema
from services.control.store.statements import Row, Statement, amend_row, delete_rows, insert_rows, put_row


@dataclass(frozen=True, slots=True)
class OfView:
    """A table whose rows follow from the view, by their primary key; they differ only where `basis` does.

    Each row has a source in the view. The row is the same as long as its source is the same object.
    """

    table: Table
    sources: Callable[[MeshView], Ordered[Any]]
    key: Callable[[Any], str]
    """The primary key of the row that a source gives."""
    row: Callable[[MeshView, Any], Row]
    basis: Callable[[MeshView], object]

    def rows(self, view: MeshView) -> dict[Any, Row]:
        return {self.key(source): self.row(view, source) for source in self.sources(view)}

    def differing(self, before: MeshView, after: MeshView) -> tuple[list[Any], list[Row]]:
        """Keys of rows that are not what they were, or are no more; the rows that take their place, or are new."""
        old, new = self.sources(before), self.sources(after)
        start, end = old.alike(new)
        going = {self.key(source): source for source in old.between(start, len(old) - end)}
        coming = {self.key(source): source for source in new.between(start, len(new) - end)}
        put = {key: source for key, source in coming.items() if going.get(key) is not source}
        gone = [key for key in going if key in put or key not in coming]
        return gone, [self.row(after, source) for source in put.values()]


@dataclass(frozen=True, slots=True)
class Put:
    """The row as it is from now on, new or in place of the one with its primary key."""

    table: Table
    row: Row


@dataclass(frozen=True, slots=True)
class Amend:
    """New values in the row with this primary key."""

    table: Table
    key: Any
    values: Row


RowChange = Put | Amend
BY_EVENTS = (schema.rollouts, schema.sidecar_orders, schema.replays)
"""Tables whose rows follow from single events."""
RESULTS = {
    events.ORDER_RESULT_DONE: "done",
    events.ORDER_RESULT_FAILED: "failed",
    events.ORDER_RESULT_EXPIRED: "expired",
}


def changes_by(event: events.Event) -> Iterator[RowChange]:
    """The changes that an event makes in tables that do not follow from the view."""
    rollouts = schema.rollouts
    time = event.time.ToDatetime(UTC)
    match event.WhichOneof("payload"):
        case "rule_set_changed":
            held = is_pending(event.rule_set_changed)
            state, ended = ("pending", None) if held else ("switched", time)
            row = {"revision": event.position, "state": state, "cause": "", "started": time, "ended": ended}
            yield Put(rollouts, row)
        case "rollout_switched":
            yield Amend(rollouts, event.rollout_switched.revision, {"state": "switched", "ended": time})
        case "rollout_aborted":
            values = {"state": "aborted", "ended": time, "cause": event.rollout_aborted.cause}
            yield Amend(rollouts, event.rollout_aborted.revision, values)
        case "sidecar_ordered":
            yield Put(schema.sidecar_orders, _order_row(event))
        case "sidecar_order_ended":
            order = event.sidecar_order_ended
            values = {"state": RESULTS[order.outcome.result], "description": order.outcome.description, "ended": time}
            yield Amend(
                schema.sidecar_orders, order.name, values | ({"sidecar": order.sidecar} if order.sidecar else {})
            )
        case "sidecar_order_handed_over":
            handed = event.sidecar_order_handed_over
            yield Amend(schema.sidecar_orders, handed.name, {"sidecar": handed.sidecar})
        case "replay_started":
            yield Put(schema.replays, _replay_row(event))
        case "replay_assigned":
            values = {"state": "running", "member": event.replay_assigned.member}
            yield Amend(schema.replays, event.replay_assigned.name, values)
        case "replay_ended":
            replay = event.replay_ended
            values = {"state": WORDS[replay.state], "description": replay.description, "ended": time}
            totals = replay.totals if replay.HasField("totals") else totals_of(replay.partitions)
            values |= {"records": totals.records, "failed": totals.failed}
            yield Amend(schema.replays, replay.name, values)


def statements(before: MeshView, after: MeshView, new: Iterable[events.Event]) -> Iterator[Statement]:
    """The statements that bring the projections from `before` to `after`."""
    for each in OF_VIEWS:
        if each.basis(before) != each.basis(after):
            gone, rows = each.differing(before, after)
            # changed rows are deleted before they are inserted again, so that unique columns may swap their values
            yield from delete_rows(each.table, gone)
            yield from insert_rows(each.table, rows)
    yield from rule_versions.statements(before, after)
    for event in new:
        yield from map(_statement, changes_by(event))


def _statement(change: RowChange) -> Statement:
    match change:
        case Put(table, row):
            return put_row(table, row)
        case Amend(table, key, values):
            return amend_row(table, key, values)


def _cluster_row(view: MeshView, cluster: UpstreamCluster) -> Row:
    return {
        "name": cluster.name,
        "ordinal": cluster.ordinal,
        "home": cluster.home,
        "kafka_cluster_id": cluster.kafka_cluster_id,
        "spec": _json(cluster_to_proto(cluster).spec),
        "revision": view.cluster_revisions[cluster.name],
    }


def _rule_row(view: MeshView, version: RuleVersion) -> Row:
    rule, origin = version.rule, view.rule_origins[version.rule.rule_id]
    return {
        "rule_id": rule.rule_id,
        "rank": version.rank,
        "match_kind": field_of(rule.match).removeprefix("match."),
        "match": rule.match.text,
        "clients": {} if rule.match.client is None else _json(client_match_to_proto(rule.match.client)),
        "target_cluster": rule.target_cluster,
        "upstream_topic": rule.upstream_topic,
        "shadow_topics": rule.shadow_topics,
        "span_clusters": rule.span_clusters,
        "node_view": "" if rule.node_view is NodeView.BY_SOFTWARE else rule.node_view.value,
        "revision": origin.revision,
        "actor": origin.actor,
        "update_time": origin.time.replace(tzinfo=UTC),
    }


def _record_rule_row(_view: MeshView, rule: RecordRule) -> Row:
    kind = rule.spec.WhichOneof("kind") or ""
    return {
        "record_rule_id": rule.rule_id,
        "kind": kind,
        "source_cluster": getattr(rule.spec, kind).source_cluster,
        "paused": rule.paused,
        "spec": _json(rule.spec),
        "revision": rule.revision,
        "actor": rule.actor,
        "update_time": rule.time,
    }


def _order_row(event: events.Event) -> Row:
    order = event.sidecar_ordered.order
    return {
        "name": order.name,
        "target": order.target,
        "sidecar": order.sidecar,
        "kind": order.command.WhichOneof("command") or "",
        "command": _json(order.command),
        "state": "open",
        "description": "",
        "revision": event.position,
        "actor": event.actor,
        "ordered": event.time.ToDatetime(UTC),
        "ended": None,
    }


def _replay_row(event: events.Event) -> Row:
    replay = event.replay_started.replay
    return {
        "name": replay.name,
        "destination": replay.spec.WhichOneof("destination") or "",
        "spec": _json(replay.spec),
        "state": "pending",
        "member": "",
        "records": 0,
        "failed": 0,
        "description": "",
        "revision": event.position,
        "actor": event.actor,
        "started": event.time.ToDatetime(UTC),
        "ended": None,
    }


def _json(message: Message) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


OF_VIEWS: Sequence[OfView] = (
    OfView(
        schema.clusters,
        lambda view: Ordered(view.state.effective.clusters.values(), attrgetter("ordinal")),
        attrgetter("name"),
        _cluster_row,
        lambda view: view.cluster_revisions,
    ),
    OfView(
        schema.forwarding_rules,
        lambda view: view.state.effective.living_rules.ordered,
        attrgetter("rule.rule_id"),
        _rule_row,
        lambda view: view.rules_revision,
    ),
    OfView(
        schema.record_rules,
        lambda view: Ordered(view.record_rules.values(), attrgetter("rule_id")),
        attrgetter("rule_id"),
        _record_rule_row,
        lambda view: view.record_rules,
    ),
)
