"""Turns values of the domain into messages of the contract, and reads small parts of requests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from mesh import durations
from mesh.record_rules import RecordRule
from mesh.routing import MAX_NAME, ForwardingRule
from mesh.routing.codec import client_match_to_proto, cluster_to_proto, rule_to_proto
from mesh.rpc import admin, events, record_rules, routing
from services.control.decisions.clusters.probes import Probe
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.rules.commands import RuleChange
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.past.revisions import Moved
from services.control.domain.rules.checks import TOPIC_CHARACTERS
from services.control.domain.rules.edits import Before, Place
from services.control.domain.rules.effects import Effect, Fate
from services.control.domain.rules.moves import Move
from services.control.domain.view import MeshView

EFFECT_KINDS = {
    Fate.RECORDS_STAY: admin.MOVE_EFFECT_KIND_RECORDS_STAY,
    Fate.GOES_ON: admin.MOVE_EFFECT_KIND_GOES_ON,
    Fate.OUT_OF_RANGE: admin.MOVE_EFFECT_KIND_OUT_OF_RANGE,
    Fate.READS_AGAIN: admin.MOVE_EFFECT_KIND_READS_AGAIN,
    Fate.SILENT_SKIP: admin.MOVE_EFFECT_KIND_SILENT_SKIP,
}


RECORD_RULES = "recordrules"
"""The collection of mirrors and content rules, in resource names."""


def id_of(collection: str, name: str, field: str = "name") -> str:
    """The id in a resource name: `c1` of `clusters/c1`."""
    prefix, _, identifier = name.partition("/")
    if prefix != collection or not identifier or "/" in identifier:
        raise InvalidField(field, f"{name!r} is not a resource name of the form {collection}/ID")
    return identifier


def cluster(view: MeshView, name: str, probe: Probe | None = None) -> admin.Cluster:
    """A registered cluster with the result of its last probe, if that is given."""
    known = view.state.effective.clusters.get(name)
    if known is None:
        raise Unknown(f"clusters/{name}", f"cluster {name!r} is not registered")
    return seen_cluster(cluster_to_proto(known), probe, view.cluster_revisions[name])


def seen_cluster(known: routing.UpstreamCluster, probe: Probe | None, revision: int = 0) -> admin.Cluster:
    """A cluster, registered or to be registered, with the result of its last probe."""
    shape = admin.Cluster(
        name=f"clusters/{known.spec.cluster_name}",
        spec=known.spec,
        ordinal=known.ordinal,
        home=known.home,
        kafka_cluster_id=known.kafka_cluster_id,
        revision=revision,
        identity=known.identity if known.HasField("identity") else None,
    )
    if probe is None:
        return shape
    shape.state = admin.CLUSTER_STATE_REACHABLE if probe.reachable else admin.CLUSTER_STATE_UNREACHABLE
    shape.state_reason = probe.reason
    if probe.seen is not None:
        shape.kafka_cluster_id = shape.kafka_cluster_id or probe.seen.kafka_cluster_id
        shape.features.update(probe.seen.features)
        shape.brokers.extend(admin.Broker(id=b.id, host=b.host, port=b.port) for b in probe.seen.brokers)
    return shape


def rules(view: MeshView, start: int = 0, end: int | None = None) -> list[admin.Rule]:
    """The rules in force, in order: all, or those from `start` (counted from 0) to before `end`."""
    return [_rule(view, place, rule) for place, rule in enumerate(view.state.effective.rules[start:end], start + 1)]


def _rule(view: MeshView, place: int, rule: ForwardingRule) -> admin.Rule:
    shape = admin.Rule(name=f"rules/{rule.rule_id}", spec=rule_to_proto(rule), place=place)
    origin = view.rule_origins.get(rule.rule_id)
    if origin is not None:
        shape.revision, shape.actor = origin.revision, origin.actor
        shape.update_time.FromDatetime(origin.time.replace(tzinfo=UTC))
    return shape


def change(result: RuleChange) -> admin.RuleChangeResponse:
    """The result of a rule command."""
    return admin.RuleChangeResponse(
        revision=result.revision,
        rules=[_rule(result.view, place, rule) for place, rule in result.decision.changed],
        removed=[f"rules/{rule_id}" for rule_id in result.decision.removed_ids],
        moves=[topic_move(each) for each in result.moving.moves],
        switch_duration=durations.of_ms(result.switch_ms),
        created_topics=[move.target.upstream_topic for move in result.moving.absent if move.target is not None],
        effects=[_effect(each) for each in result.moving.effects],
        warnings=result.warnings,
    )


def topic_move(move: Move | Moved) -> admin.TopicMove:
    """A topic that a change moves, or that has moved."""
    shape = admin.TopicMove(topic=move.topic, partitions=move.partitions)
    if move.source is not None:
        shape.from_cluster, shape.from_topic = move.source
    if move.target is not None:
        shape.to_cluster, shape.to_topic = move.target
    if isinstance(move, Move) and move.client is not None:
        shape.client.CopyFrom(client_match_to_proto(move.client))
    return shape


def _effect(effect: Effect) -> admin.MoveEffect:
    return admin.MoveEffect(
        topic=effect.move.topic,
        group=effect.group,
        kind=EFFECT_KINDS[effect.fate],
        partition=effect.partition,
        position=effect.position,
        to_start=effect.new_log.start,
        to_end=effect.new_log.end,
        records=effect.records,
    )


def record_rule(rule: RecordRule, progress: RecordProgress | None) -> record_rules.RecordRule:
    """A mirror or content rule, with its progress if `progress` is given."""
    paused = rule.paused
    shape = record_rules.RecordRule(
        name=f"{RECORD_RULES}/{rule.rule_id}",
        spec=rule.spec,
        state=record_rules.RECORD_RULE_STATE_PAUSED if paused else record_rules.RECORD_RULE_STATE_RUNNING,
        revision=rule.revision,
        actor=rule.actor,
    )
    shape.update_time.FromDatetime(rule.time)
    last = None if progress is None else progress.of(rule.rule_id, paused=paused)
    if last is not None:
        shape.progress.CopyFrom(last)
    return shape


def history_entry(
    event: events.Event, changes: Iterable[str], outcome: str = "", place: str = ""
) -> admin.HistoryEntry:
    """The entry of the history for a decision."""
    return admin.HistoryEntry(
        revision=event.position,
        time=event.time,
        actor=event.actor,
        reason=event.reason,
        request_id=event.request_id,
        trace_id=event.trace_id,
        changes=changes,
        outcome=outcome,
        place=place,
        on_behalf_of=event.on_behalf_of,
        proposal=event.proposal,
    )


def place(message: admin.RulePlace) -> Place | Before | None:
    """The place that a request wants for a rule; None if the request names no place."""
    match message.WhichOneof("kind"):
        case "first":
            return Place.FIRST
        case "before":
            return Before(id_of("rules", message.before, "place.before"))
        case "last":
            return Place.LAST
        case _:
            return None


def check_topic(name: str, field: str = "topic") -> None:
    """Refuses a text that is no topic name."""
    if not 1 <= len(name) <= MAX_NAME:
        raise InvalidField(field, f"needs 1 to {MAX_NAME} characters, got {len(name)}")
    if not TOPIC_CHARACTERS.fullmatch(name):
        raise InvalidField(field, f"{name!r} is no topic name: Kafka knows a-z, A-Z, 0-9, '.', '_' and '-'")
