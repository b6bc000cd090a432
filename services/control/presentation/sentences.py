"""Decisions as sentences: one for each change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.routing import ForwardingRule, NodeView, Place, Subject
from mesh.routing.codec import rule_from_proto
from mesh.rpc import events, record_rules, routing
from services.control.domain.past.history import Home
from services.control.presentation import (
    acls,
    approvals,
    drains,
    fail_backs,
    listeners,
    protection,
    quotas,
    rehearsals,
    replays,
    roles,
    sidecars,
    standbys,
    stitches,
    tenants,
    topic_moves,
    users,
    validation,
)
from services.control.presentation.identities import identity_differences
from services.control.presentation.sidecars import moment_text

MOST_SENTENCES = 200
"""The most sentences for one decision; of the others only their number is given."""


@dataclass(frozen=True, slots=True)
class Known:
    """The facts that a sentence needs, but its event does not hold."""

    rules: Mapping[str, ForwardingRule] = field(default_factory=dict)
    """rule_id -> the rule right before the event, for the rules that the event is about."""
    order_before: Sequence[str] = ()
    order_after: Sequence[str] = ()
    """Ids of all rules in order; empty when not known."""
    earlier: events.Event | None = None
    """The previous event of the stream that holds a whole specification."""


def sentences(event: events.Event, known: Known) -> list[str]:
    """The decision of an event, as sentences."""
    kind = event.WhichOneof("payload") or ""
    if kind in _SENTENCES:
        return [_SENTENCES[kind](event)]
    if kind not in _TELLERS:
        return ["something that this release does not know"]
    told = list(_TELLERS[kind](event, known))
    left_out = len(told) - MOST_SENTENCES
    return [*told[:MOST_SENTENCES], f"and {left_out} more changes"] if left_out > 1 else told


def place_text(of: Sequence[Home], topic: str) -> str:
    """ "c1", "c1/upstream-name"; if the place depends on the client: "c2 for principal User:ada, c1 for others"."""
    texts = [
        f"{_place(home.place, topic)} for {home.clients}" if home.clients is not None else _place(home.place, topic)
        for home in of
    ]
    if len(of) > 1 and of[-1].clients is None:
        texts[-1] += " for others"
    return ", ".join(texts)


def _place(place: Place, topic: str) -> str:
    return place.cluster if place.upstream_topic == topic else f"{place.cluster}/{place.upstream_topic}"


def rule_text(rule: ForwardingRule) -> str:
    """ "topic prefix apples -> c1 as shop.{topic}"."""
    target = rule.target_cluster or f"nodes {rule.node_view.value}"
    said = (
        (rule.upstream_topic, f"as {rule.upstream_topic}"),
        (rule.shadow_topics, "with shadow topics"),
        (rule.span_clusters, "spanning clusters"),
    )
    return " ".join([f"{_match(rule)} -> {target}", *(text for is_said, text in said if is_said)])


def _match(rule: ForwardingRule) -> str:
    text = str(rule.match)
    by_pattern = rule.match.subject is Subject.TOPIC and text.startswith(("prefix ", "regex "))
    return f"topic {text}" if by_pattern else text


def _rules_changed(event: events.Event, known: Known) -> Iterator[str]:
    changed = event.rule_set_changed
    if changed.reverted_to:
        yield f"the rules of revision {changed.reverted_to} are back"
    for change in changed.changes:
        match change.WhichOneof("kind"):
            case "created":
                rule = rule_from_proto(change.created)
                yield f"rule {rule.rule_id} added: {rule_text(rule)}"
            case "updated":
                yield from _rule_updated(rule_from_proto(change.updated), known)
            case "moved":
                yield from _rule_moved(change.moved, known)
            case "removed":
                before = known.rules.get(change.removed)
                was = "" if before is None else f": {rule_text(before)}"
                yield f"rule {change.removed} removed{was}"
    if changed.without_members:
        yield f"without {', '.join(changed.without_members)}, by the operator's wish"
    if changed.HasField("canary"):
        yield f"tried first by {_canary(changed.canary)}"


def rule_differences(before: ForwardingRule, after: ForwardingRule) -> list[str]:
    """ "target_cluster c1 -> c2", for each field that has changed."""
    return [
        f"{name} {was} -> {now}" for name, read in _RULE_FIELDS.items() if (was := read(before)) != (now := read(after))
    ]


def _rule_updated(rule: ForwardingRule, known: Known) -> Iterator[str]:
    before = known.rules.get(rule.rule_id)
    if before is None:
        yield f"rule {rule.rule_id} is now: {rule_text(rule)}"
        return
    yield f"rule {rule.rule_id}: {', '.join(rule_differences(before, rule)) or 'nothing that this release knows'}"


def _rule_moved(rule_id: str, known: Known) -> Iterator[str]:
    if rule_id not in known.order_before or rule_id not in known.order_after:
        yield f"rule {rule_id} moved"
        return
    was, now = (order.index(rule_id) + 1 for order in (known.order_before, known.order_after))
    if was != now:  # otherwise only the rank has changed, to make room for other rules
        yield f"rule {rule_id}: place {was} -> {now}"


def _canary(canary: events.Canary) -> str:
    who = ", ".join(canary.members) or "all gateways"
    share = canary.permille or 1000
    return who if share == 1000 else f"{share / 10:g} % of the connections of {who}"


def _cluster_registered(event: events.Event) -> str:
    cluster = event.cluster_registered.cluster
    home = ", the home cluster" if cluster.home else ""
    return f"cluster {cluster.spec.cluster_name} registered at {', '.join(cluster.spec.bootstrap_servers)}{home}"


def _cluster_updated(event: events.Event, known: Known) -> Iterator[str]:
    after = event.cluster_updated.cluster
    earlier = known.earlier
    before = routing.UpstreamCluster()
    if earlier is not None:
        registered = earlier.HasField("cluster_registered")
        before = earlier.cluster_registered.cluster if registered else earlier.cluster_updated.cluster
    told = [
        *message_differences(_without_identity(before), _without_identity(after)),
        *identity_differences(before.identity, after.identity),
    ]
    yield f"cluster {after.spec.cluster_name}: {', '.join(told).replace('spec.', '') or 'seen anew'}"


def _without_identity(cluster: routing.UpstreamCluster) -> routing.UpstreamCluster:
    found = routing.UpstreamCluster()
    found.CopyFrom(cluster)
    found.ClearField("identity")
    return found


def _scheduled(event: events.Event) -> str:
    change = event.change_scheduled
    command = change.command.TypeName().rpartition(".")[2].removesuffix("Request")
    return f"scheduled as {_schedule(change.name)} for {moment_text(change.time)}: {command}"


def _schedule_ended(event: events.Event) -> str:
    ended = event.scheduled_change_ended
    what = _OUTCOMES.get(ended.outcome, "ended in a way that this release does not know")
    more = f"revision {ended.revision}" if ended.revision else ended.problem
    return f"scheduled change {_schedule(ended.name)} {what}{': ' if more else ''}{more}"


def _schedule(name: str) -> str:
    return name.removeprefix("schedules/")


def _record_rule_created(event: events.Event) -> str:
    spec = event.record_rule_created.rule
    return f"record rule {spec.record_rule_id} created: {_record_rule(spec)}"


def _record_rule_updated(event: events.Event, known: Known) -> Iterator[str]:
    after, earlier = event.record_rule_updated.rule, known.earlier
    before = record_rules.RecordRuleSpec()
    if earlier is not None:
        made = earlier.HasField("record_rule_created")
        before = earlier.record_rule_created.rule if made else earlier.record_rule_updated.rule
    yield f"record rule {after.record_rule_id}: {', '.join(message_differences(before, after))}"


def _record_rule(spec: record_rules.RecordRuleSpec) -> str:
    if spec.WhichOneof("kind") == "mirror":
        mirror = spec.mirror
        topics = mirror.WhichOneof("topics") or "topic"
        what = f"{topics.replace('_', ' ')} {getattr(mirror, topics)}"
        return f"mirror of {what} from {mirror.source_cluster} to {mirror.target_cluster}"
    return f"content rule for topic {spec.content.topic} of {spec.content.source_cluster}"


def _record_rule_rewound(event: events.Event) -> str:
    rewound = event.record_rule_rewound
    kind = rewound.start.WhichOneof("kind") or "nowhere"
    where = moment_text(rewound.start.time) if kind == "time" else kind
    if kind == "offsets":
        where = f"{len(rewound.start.offsets.offsets)} offsets of {rewound.start.offsets.topic}"
    return f"record rule {rewound.record_rule_id} begins again from {where}"


def _groups_synced(event: events.Event) -> str:
    order = event.group_offsets_sync_ordered
    groups = ", ".join(order.groups) or "all groups"
    return f"record rule {order.record_rule_id}: offsets of {groups} are to be translated"


def _transaction_ended(event: events.Event) -> str:
    order = event.transaction_end_ordered
    where = ", ".join(part.cluster for part in order.parts)
    how = "the decided transaction is finished" if order.commit else "the open transaction is aborted"
    return f"transactional id {order.transactional_id}: {how} on {where}"


def _subscription_declared(event: events.Event, known: Known) -> Iterator[str]:
    after, earlier = event.subscription_declared.subscription, known.earlier
    who = ", ".join(after.sidecars)
    if earlier is None or not earlier.HasField("subscription_declared"):
        what = f"topics that match {after.spec.topic_pattern}" if after.spec.topic_pattern else ""
        yield f"subscription {after.name} declared for sidecars {who}: {what or ', '.join(after.spec.topics)}"
        return
    before = earlier.subscription_declared.subscription
    told = (each.removeprefix("spec.") for each in message_differences(before, after))
    yield f"subscription {after.name}: {', '.join(told) or 'nothing that this release knows'}"


def _owner(of: events.TopicOwnerSet) -> str:
    return f"topic {of.topic} {f'belongs to {of.owner}' if of.owner else 'has no owner any more'}"


_RULE_FIELDS: dict[str, Callable[[ForwardingRule], str]] = {
    "match": _match,
    "target_cluster": lambda rule: rule.target_cluster or "none",
    "upstream_topic": lambda rule: rule.upstream_topic or "the same name",
    "shadow_topics": lambda rule: "yes" if rule.shadow_topics else "no",
    "span_clusters": lambda rule: "yes" if rule.span_clusters else "no",
    "nodes": lambda rule: NodeView(rule.node_view).value,
}
_OUTCOMES = {
    events.SCHEDULE_OUTCOME_DONE: "made",
    events.SCHEDULE_OUTCOME_REFUSED: "refused",
    events.SCHEDULE_OUTCOME_MISSED: "missed",
    events.SCHEDULE_OUTCOME_CANCELLED: "cancelled",
}
_SENTENCES: dict[str, Callable[[events.Event], str]] = {
    "cluster_removed": lambda event: f"cluster {event.cluster_removed.cluster_name} removed",
    "rollout_switched": lambda event: f"revision {event.rollout_switched.revision} in force on all gateways",
    "rollout_aborted": lambda event: (
        f"revision {event.rollout_aborted.revision} given up: {event.rollout_aborted.cause}"
    ),
    "mesh_frozen": lambda _: "the mesh is frozen: changes are refused",
    "mesh_thawed": lambda _: "the mesh takes changes again",
    "record_rule_created": _record_rule_created,
    "record_rule_paused": lambda event: f"record rule {event.record_rule_paused.record_rule_id} paused",
    "record_rule_resumed": lambda event: f"record rule {event.record_rule_resumed.record_rule_id} resumed",
    "record_rule_removed": lambda event: f"record rule {event.record_rule_removed.record_rule_id} removed",
    "cluster_registered": _cluster_registered,
    "change_scheduled": _scheduled,
    "scheduled_change_ended": _schedule_ended,
    "record_rule_rewound": _record_rule_rewound,
    "group_offsets_sync_ordered": _groups_synced,
    "subscription_withdrawn": lambda event: f"subscription {event.subscription_withdrawn.name} withdrawn",
    "log_signed": lambda event: f"control signs its decisions with the certificate {event.log_signed.subject}",
    "topic_owner_set": lambda event: _owner(event.topic_owner_set),
    "transaction_end_ordered": _transaction_ended,
    **approvals.SENTENCES,
    **replays.SENTENCES,
    **roles.SENTENCES,
    **topic_moves.SENTENCES,
    **drains.SENTENCES,
    **standbys.SENTENCES,
    **fail_backs.SENTENCES,
    **users.SENTENCES,
}
"""Payload -> its only sentence."""
_TELLERS: dict[str, Callable[[events.Event, Known], Iterator[str]]] = {
    "acls_created": lambda event, _: acls.created(event),
    "acls_deleted": lambda event, _: acls.deleted(event),
    "acl_mode_set": lambda event, _: acls.mode_set(event),
    "quotas_changed": lambda event, _: quotas.changed(event),
    "validation_rules_changed": lambda event, _: validation.changed(event),
    "tenants_changed": lambda event, _: tenants.changed(event),
    "listeners_changed": lambda event, _: listeners.changed(event),
    "rehearsals_changed": lambda event, _: rehearsals.changed(event),
    "stitched_logs_changed": lambda event, _: stitches.changed(event),
    "protection_rules_changed": lambda event, _: protection.changed(event),
    "approval_policy_set": lambda event, _: approvals.policy_set(event),
    "cluster_updated": _cluster_updated,
    "rule_set_changed": _rules_changed,
    "record_rule_updated": _record_rule_updated,
    "replay_started": lambda event, _: replays.started(event),
    "consumer_instance_registered": lambda event, _: sidecars.instance_registered(event),
    "consumer_instance_removed": lambda event, _: sidecars.instance_removed(event),
    "subscription_declared": _subscription_declared,
    "sidecar_ordered": lambda event, _: sidecars.ordered(event),
    "sidecar_order_ended": lambda event, _: sidecars.order_ended(event),
    "sidecar_order_handed_over": lambda event, _: sidecars.order_handed_over(event),
}
"""Payload -> its sentences."""


def message_differences(before: Message, after: Message, path: str = "") -> Iterator[str]:
    """ "bootstrap_servers a:1 -> b:1", for each field that has changed."""
    for each in after.DESCRIPTOR.fields:
        was, now = getattr(before, each.name), getattr(after, each.name)
        is_optional = each.has_presence and each.message_type is None
        if was == now and not (is_optional and before.HasField(each.name) != after.HasField(each.name)):
            continue
        name = f"{path}{each.name}"
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            for key in sorted({*was, *now}, key=str):
                if (key in was, was.get(key)) != (key in now, now.get(key)):
                    yield f"{name}[{key}] {was.get(key, 'unset')} -> {now.get(key, 'unset')}"
        elif each.message_type is None or each.is_repeated or isinstance(now, Timestamp):
            texts = (
                "unset" if is_optional and not of.HasField(each.name) else _value(each, getattr(of, each.name))
                for of in (before, after)
            )
            yield f"{name} {' -> '.join(texts)}"
        else:
            yield from message_differences(was, now, f"{name}.")


def _value(of: Any, value: object) -> str:
    if isinstance(value, Timestamp):
        return moment_text(value)
    if of.enum_type is not None and isinstance(value, int):
        return str(of.enum_type.values_by_number[value].name.lower())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float | bytes):
        return str(value) or "none"
    shown = [" ".join(str(each).split()) for each in value]  # type: ignore[attr-defined]  # what is left is repeated
    return ", ".join(shown) or "none"
