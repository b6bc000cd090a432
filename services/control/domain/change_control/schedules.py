"""The schedule aggregate: a command that control is to carry out later, once.

Times are UTC. A command is due at its time. The command is missed if control was away until `may_be_late` after its
time. Control decides the command when it is due, on the rules that are then in force.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from mesh import durations
from mesh.rpc import admin, events
from services.control.domain.errors import InvalidField, NotAllowed, Unknown

SCHEDULES = "schedules"
"""The collection, in resource names and streams."""
MAX_PENDING = 1000
"""Changes that are still to come; control holds each in memory and sends it to every operator who lists them."""
LONGEST_COMMAND = 256 * 1024
"""Bytes; some thousand rules. A larger change belongs into a file for `meshctl apply`."""
FARTHEST = timedelta(days=366)
USUAL_LATENESS_S = 600
LARGEST_LATENESS_S = 86_400
REQUEST_IDS = uuid.UUID("6d657368-0000-4000-8000-7363686564db")
"""Namespace of the request ids of schedules' calls; any UUID would do, as long as it stays."""

COMMANDS: dict[str, type[Message]] = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        admin.CreateRuleRequest,
        admin.UpdateRuleRequest,
        admin.SetRuleRequest,
        admin.ReorderRuleRequest,
        admin.RemoveRuleRequest,
        admin.ReplaceRulesRequest,
        admin.ChangeRulesRequest,
        admin.RevertRequest,
    )
}
"""The commands that can be scheduled, by the name of the request."""

Pending = Mapping[str, events.Event]
"""schedules/{id} -> the ChangeScheduled event of a change that is still to come."""


def schedule(
    pending: Pending, identifier: str, request: admin.ScheduleChangeRequest, now: datetime
) -> events.ChangeScheduled:
    """The event for a command that can be scheduled; whether control can carry it out is checked when it is due."""
    if len(pending) >= MAX_PENDING:
        raise NotAllowed(
            "TOO_MANY_SCHEDULES",
            SCHEDULES,
            f"{len(pending)} changes are scheduled already, more than {MAX_PENDING} can't be; cancel some, or wait",
        )
    _check_time(request, now)
    _check_options(command_of(request.command))
    late_s = durations.whole_s(request.may_be_late)
    if not 0 <= late_s <= LARGEST_LATENESS_S:
        text = f"{late_s} s is not from 0 to {LARGEST_LATENESS_S} s; 0 means {USUAL_LATENESS_S} s"
        raise InvalidField("may_be_late", text)
    return events.ChangeScheduled(
        name=f"{SCHEDULES}/{identifier}",
        time=request.time,
        command=request.command,
        may_be_late=durations.of_s(late_s or USUAL_LATENESS_S),
    )


def command_of(packed: AnyMessage) -> Message:
    """The request in a google.protobuf.Any."""
    name = packed.TypeName()
    if name not in COMMANDS:
        possible = ", ".join(known.removeprefix("mesh.v1.") for known in COMMANDS)
        raise InvalidField("command", f"{name or 'nothing'} can't be scheduled; possible are {possible}")
    if len(packed.value) > LONGEST_COMMAND:
        raise InvalidField("command", f"has {len(packed.value)} bytes; {LONGEST_COMMAND} are possible")
    try:
        return COMMANDS[name].FromString(packed.value)
    except DecodeError:
        raise InvalidField("command", f"is no {name}: its bytes can't be read") from None


def get(pending: Pending, name: str) -> events.Event:
    if name not in pending:
        raise Unknown(name, f"no change {name!r} is still to come: it was carried out or cancelled, or never scheduled")
    return pending[name]


def in_order(pending: Pending) -> list[events.Event]:
    """The soonest change first; changes of the same time are in the order of their requests."""
    return sorted(pending.values(), key=lambda event: (_time(event), event.position))


def due(pending: Pending, now: datetime) -> list[events.Event]:
    """The changes that are due, in order."""
    return [event for event in in_order(pending) if _time(event) <= now]


def is_missed(event: events.Event, now: datetime) -> bool:
    return now > _time(event) + timedelta(seconds=durations.whole_s(event.change_scheduled.may_be_late))


def request_id_of(event: events.Event) -> str:
    """The request id of the call that carries the change out; it is always the same.

    If a control stops right after the decision, its successor finds the schedule still pending. With the same id, both
    make one call, not two.
    """
    return str(uuid.uuid5(REQUEST_IDS, f"{event.change_scheduled.name} {event.event_id}"))


def ended(
    event: events.Event, outcome: events.ScheduleOutcome.ValueType, revision: int = 0, problem: str = ""
) -> events.ScheduledChangeEnded:
    return events.ScheduledChangeEnded(
        name=event.change_scheduled.name, outcome=outcome, revision=revision, problem=problem
    )


def _time(event: events.Event) -> datetime:
    return event.change_scheduled.time.ToDatetime(UTC)


def _check_time(request: admin.ScheduleChangeRequest, now: datetime) -> None:
    if not request.HasField("time"):
        raise InvalidField("time", "is required: say when")
    try:
        wanted = request.time.ToDatetime(UTC)
    except (ValueError, OverflowError):
        raise InvalidField("time", "is no time between the years 1 and 9999") from None
    if wanted <= now:
        raise InvalidField("time", f"{wanted:%Y-%m-%d %H:%M:%S} UTC is past; control's clock says {now:%H:%M:%S} UTC")
    if wanted > now + FARTHEST:
        raise InvalidField("time", f"{wanted:%Y-%m-%d %H:%M:%S} UTC is too far away; {FARTHEST.days} days are possible")


def _check_options(command: Message) -> None:
    """Refuses options that have no meaning when nobody waits for an answer."""
    options: admin.ChangeOptions = command.options  # type: ignore[attr-defined]  # all of COMMANDS have them
    if options.request_id:
        raise InvalidField("command.options.request_id", "leave it out: the schedule has an id for its call")
    if options.validate_only:
        raise InvalidField("command.options.validate_only", "a check is made now, not later: leave it out")
    if options.wait_for:
        raise InvalidField("command.options.wait_for", "nobody waits for the answer then: leave it out")
