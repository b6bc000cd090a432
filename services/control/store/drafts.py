"""Events before they are in the log: what a decision says, the caller of the command, and the events made of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.message import Message

from mesh.event_log import FORMAT, MOST_EVENT_BYTES, Chain
from mesh.rpc import events
from services.control.domain.errors import InvalidField
from services.control.store.log import Entry, new_event_id

PAYLOADS: dict[type[Message], str] = {
    events.ClusterRegistered: "cluster_registered",
    events.ClusterUpdated: "cluster_updated",
    events.ClusterRemoved: "cluster_removed",
    events.RuleSetChanged: "rule_set_changed",
    events.RolloutSwitched: "rollout_switched",
    events.RolloutAborted: "rollout_aborted",
    events.ConsumerInstanceRemoved: "consumer_instance_removed",
    events.ChangeScheduled: "change_scheduled",
    events.ScheduledChangeEnded: "scheduled_change_ended",
    events.MeshFrozen: "mesh_frozen",
    events.MeshThawed: "mesh_thawed",
    events.RecordRuleCreated: "record_rule_created",
    events.RecordRuleUpdated: "record_rule_updated",
    events.RecordRulePaused: "record_rule_paused",
    events.RecordRuleResumed: "record_rule_resumed",
    events.RecordRuleRewound: "record_rule_rewound",
    events.RecordRuleRemoved: "record_rule_removed",
    events.GroupOffsetsSyncOrdered: "group_offsets_sync_ordered",
    events.SidecarOrdered: "sidecar_ordered",
    events.SidecarOrderHandedOver: "sidecar_order_handed_over",
    events.SidecarOrderEnded: "sidecar_order_ended",
    events.ReplayStarted: "replay_started",
    events.ReplayAssigned: "replay_assigned",
    events.ReplayProgressed: "replay_progressed",
    events.ReplayCancelOrdered: "replay_cancel_ordered",
    events.ReplayEnded: "replay_ended",
    events.TransactionEndOrdered: "transaction_end_ordered",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a command, with its reason and its ids."""

    actor: str
    reason: str = ""
    trace_id: str = ""
    request_id: str = ""
    digest: bytes = b""
    """Fingerprint of the request, so that a request_id is not used for two different requests."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a position."""

    stream: str
    payload: Message


def events_of(
    drafts: Sequence[Draft], caller: Caller, chain: Chain, versions: Mapping[str, int], time: datetime
) -> tuple[list[Entry], Chain]:
    """The events of drafts that continue the chain, and the chain after them."""
    last = dict(versions)
    new: list[Entry] = []
    for draft in drafts:
        last[draft.stream] += 1
        event = events.Event(
            position=chain.position + 1,
            event_id=new_event_id(),
            stream=draft.stream,
            stream_version=last[draft.stream],
            actor=caller.actor,
            reason=caller.reason,
            request_id=caller.request_id,
            trace_id=caller.trace_id,
            format=FORMAT,
            previous_hash=chain.hash,
        )
        event.time.FromDatetime(time)
        getattr(event, PAYLOADS[type(draft.payload)]).CopyFrom(draft.payload)
        body = event.SerializeToString(deterministic=True)
        if len(body) > MOST_EVENT_BYTES:
            raise InvalidField(
                "request",
                f"the decision would be an event of {len(body)} bytes, and {MOST_EVENT_BYTES} are possible: "
                "make several smaller changes",
            )
        chain = chain.after(event, body)
        new.append(Entry(event, body))
    return new, chain
