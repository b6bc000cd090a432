"""The schedule aggregate: a command that is to be carried out later, once.

Times are UTC. A command is due when its time has come; it is missed when control was away until its time and
`may_be_late_s` more have passed. What it does then is decided then, on the rules as they are by then.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from mesh.rpc import admin, events
from services.control.domain.errors import InvalidField, NotAllowed, Unknown

SCHEDULES = "schedules"
"""The collection, in resource names and streams."""
MAX_PENDING = 1000
"""Changes that are still to come; each is held in memory and looked at by every operator who lists them."""
LONGEST_COMMAND = 256 * 1024
"""Bytes; some thousand rules. More belongs into a file that `meshctl apply` brings."""
FARTHEST = timedelta(days=366)
USUAL_LATENESS_S = 600
LARGEST_LATENESS_S = 86_400
REQUEST_IDS = uuid.UUID("6d657368-0000-4000-8000-7363686564db")
"""Namespace of the request ids that schedules' calls have; any UUID would do, as long as it stays."""

COMMANDS: dict[str, type[Message]] = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        admin.CreateRuleRequest,
        admin.UpdateRuleRequest,
        admin.SetRuleRequest,
        admin.MoveRuleRequest,
        admin.RemoveRuleRequest,
        admin.ReplaceRulesRequest,
        admin.ChangeRulesRequest,
        admin.RevertRequest,
    )
}
"""What can be scheduled, by the name of its request."""

Pending = Mapping[str, events.Event]
"""ChangeScheduled events of what is still to come, by schedules/{id}."""


def schedule(
    pending: Pending, identifier: str, request: admin.ScheduleChangeRequest, now: datetime
) -> events.ChangeScheduled:
    """The event for a command that can be scheduled; whether it can be carried out is another question."""
    if len(pending) >= MAX_PENDING:
        raise NotAllowed(
            "TOO_MANY_SCHEDULES",
            SCHEDULES,
            f"{len(pending)} changes are scheduled already, more than {MAX_PENDING} can't be; cancel some, or wait",
        )
    _check_time(request, now)
    _check_options(command_of(request.command))
    if not 0 <= request.may_be_late_s <= LARGEST_LATENESS_S:
        raise InvalidField(
            "may_be_late_s",
            f"{request.may_be_late_s} is not from 0 to {LARGEST_LATENESS_S}; 0 means {USUAL_LATENESS_S}",
        )
    return events.ChangeScheduled(
        name=f"{SCHEDULES}/{identifier}",
        time=request.time,
        command=request.command,
        may_be_late_s=request.may_be_late_s or USUAL_LATENESS_S,
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
    """Soonest first; of the same time, in the order in which they were asked for."""
    return sorted(pending.values(), key=lambda event: (_time(event), event.position))


def due(pending: Pending, now: datetime) -> list[events.Event]:
    """Those whose time has come, in order."""
    return [event for event in in_order(pending) if _time(event) <= now]


def is_missed(event: events.Event, now: datetime) -> bool:
    return now > _time(event) + timedelta(seconds=event.change_scheduled.may_be_late_s)


def request_id_of(event: events.Event) -> str:
    """Of the call that carries it out. Always the same one: a control that stops right after the decision, and the one
    that finds the schedule still pending, make one call, not two.
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
    """Options that have no meaning when nobody waits for an answer."""
    options: admin.ChangeOptions = command.options  # type: ignore[attr-defined]  # all of COMMANDS have them
    if options.request_id:
        raise InvalidField("command.options.request_id", "leave it out: the schedule has an id for its call")
    if options.validate_only:
        raise InvalidField("command.options.validate_only", "a check is made now, not later: leave it out")
    if options.wait_for:
        raise InvalidField("command.options.wait_for", "nobody waits for the answer then: leave it out")
