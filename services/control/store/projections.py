"""Projections: the mesh as tables, kept in the same transaction as the events they follow from. For people, reports
and Spark.

Control itself answers from its view in memory; these rows are written as the difference between the view before and
after.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from sqlalchemy import Table, delete, insert, update
from sqlalchemy.dialects.postgresql import insert as insert_or
from sqlalchemy.ext.asyncio import AsyncConnection

from mesh.routing import NodeView, RuleVersion, UpstreamCluster, field_of
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import events
from services.control.domain.view import MeshView
from services.control.store import schema

Row = dict[str, Any]


async def project(connection: AsyncConnection, before: MeshView, after: MeshView, new: Iterable[events.Event]) -> None:
    """Brings the projections from `before` to `after`."""
    await _replace(connection, schema.clusters, "name", _cluster_rows(before), _cluster_rows(after))
    if before.rules_revision != after.rules_revision:
        await _replace(connection, schema.forwarding_rules, "rule_id", _rule_rows(before), _rule_rows(after))
    for event in new:
        await _project_event(connection, event)


async def _project_event(connection: AsyncConnection, event: events.Event) -> None:
    rollouts, instances = schema.rollouts, schema.consumer_instances
    time = event.time.ToDatetime(UTC)
    match event.WhichOneof("payload"):
        case "rule_set_changed":
            held = event.rule_set_changed.needs_hold
            row = {
                "revision": event.position,
                "state": "pending" if held else "switched",
                "started": time,
                "ended": None if held else time,
            }
            await connection.execute(insert(rollouts).values(**row))
        case "rollout_switched":
            where = rollouts.c.revision == event.rollout_switched.revision
            await connection.execute(update(rollouts).where(where).values(state="switched", ended=time))
        case "rollout_aborted":
            where = rollouts.c.revision == event.rollout_aborted.revision
            values = {"state": "aborted", "ended": time, "cause": event.rollout_aborted.cause}
            await connection.execute(update(rollouts).where(where).values(**values))
        case "consumer_instance_registered":
            instance = event.consumer_instance_registered.instance
            row = {"sidecar": instance.sidecar, "instance": _json(instance), "revision": event.position}
            statement = insert_or(instances).values(name=instance.name, **row)
            await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=row))
        case "consumer_instance_removed":
            gone = event.consumer_instance_removed.name
            await connection.execute(delete(instances).where(instances.c.name == gone))


async def _replace(
    connection: AsyncConnection, table: Table, key: str, old: Mapping[str, Row], new: Mapping[str, Row]
) -> None:
    """Writes what differs; what changed goes first and comes back, so that unique columns may swap their values."""
    changed: Sequence[str] = [name for name, row in new.items() if old.get(name) != row]
    stale = [name for name in old if name not in new or old[name] != new[name]]
    if stale:
        await connection.execute(delete(table).where(table.c[key].in_(stale)))
    if changed:
        await connection.execute(insert(table), [new[name] for name in changed])


def _cluster_rows(view: MeshView) -> dict[str, Row]:
    return {name: _cluster_row(view, cluster) for name, cluster in view.state.effective.clusters.items()}


def _cluster_row(view: MeshView, cluster: UpstreamCluster) -> Row:
    return {
        "name": cluster.name,
        "ordinal": cluster.ordinal,
        "home": cluster.home,
        "kafka_cluster_id": cluster.kafka_cluster_id,
        "spec": _json(cluster_to_proto(cluster).spec),
        "revision": view.cluster_revisions[cluster.name],
    }


def _rule_rows(view: MeshView) -> dict[str, Row]:
    return {version.rule.rule_id: _rule_row(view, version) for version in view.state.effective.living}


def _rule_row(view: MeshView, version: RuleVersion) -> Row:
    rule, origin = version.rule, view.rule_origins[version.rule.rule_id]
    return {
        "rule_id": rule.rule_id,
        "rank": version.rank,
        "match_kind": field_of(rule.match).removeprefix("match."),
        "match": rule.match.text,
        "target_cluster": rule.target_cluster,
        "upstream_topic": rule.upstream_topic,
        "shadow_topics": rule.shadow_topics,
        "span_clusters": rule.span_clusters,
        "node_view": "" if rule.node_view is NodeView.BY_SOFTWARE else rule.node_view.value,
        "revision": origin.revision,
        "actor": origin.actor,
        "update_time": origin.time.replace(tzinfo=UTC),
    }


def _json(message: Message) -> Any:
    return json.loads(MessageToJson(message, preserving_proto_field_name=True))
