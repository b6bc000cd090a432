"""Events before they are in the log: what a decision says, the caller of the command, and the events made of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from google.protobuf.message import Message

from mesh.event_log import FORMAT, MOST_EVENT_BYTES, Chain, Signs, signed_event
from mesh.rpc import events
from services.control.domain.errors import InvalidField
from services.control.store.log import Entry, new_event_id
from services.control.store.statements import Statement

PAYLOADS: dict[type[Message], str] = {
    getattr(events, each.message_type.name): each.name
    for each in events.Event.DESCRIPTOR.oneofs_by_name["payload"].fields
    if each.message_type is not None
}
"""Payload -> its field in an event."""
CONTROL = "control"
"""The actor of decisions that control makes by itself."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a command, with its reason and its ids."""

    actor: str
    reason: str = ""
    trace_id: str = ""
    request_id: str = ""
    digest: bytes = b""
    """Fingerprint of the request, so that a request_id is not used for two different requests."""
    on_behalf_of: str = ""
    proposal: str = ""
    """The proposal by which the command was approved, or an emergency was declared."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a position."""

    stream: str
    payload: Message
    beside: Callable[[events.Event], Statement] | None = None
    """A row that the transaction of the event writes beside the log: a secret must not be in the event."""


def events_of(
    drafts: Sequence[Draft],
    caller: Caller,
    chain: Chain,
    versions: Mapping[str, int],
    time: datetime,
    keys: Signs | None = None,
) -> tuple[list[Entry], Chain]:
    """The events of drafts that continue the chain, and the chain after them. `keys` sign the events."""
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
            on_behalf_of=caller.on_behalf_of,
            proposal=caller.proposal,
        )
        event.time.FromDatetime(time)
        getattr(event, PAYLOADS[type(draft.payload)]).CopyFrom(draft.payload)
        body = signed_event(event, keys, chain.key_id)
        if len(body) > MOST_EVENT_BYTES:
            raise InvalidField(
                "request",
                f"the decision would be an event of {len(body)} bytes, and {MOST_EVENT_BYTES} are possible: "
                "make several smaller changes",
            )
        chain = chain.after(event, body)
        new.append(Entry(event, body))
    return new, chain
