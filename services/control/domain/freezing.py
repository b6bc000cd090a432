"""A frozen mesh: every change is refused, and who froze it, when and why is said, until somebody thaws it.

`FREED` is the one list of what may happen all the same: thawing, and the course and end of what had begun before;
beside it only orders that ask a sidecar something or are part of such a course, and replays that only count. Whatever
is not there is refused, an event that is new to this file, too. What members report is no event, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from google.protobuf.message import Message

from mesh.rpc import events
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.sidecar_commands import reads_only

FREEZE_STREAM = "freeze"
FREED: tuple[type[Message], ...] = (
    events.MeshThawed,
    events.ConsumerInstanceRemoved,
    events.RolloutSwitched,
    events.RolloutAborted,
    events.ScheduledChangeEnded,
    events.SidecarOrderHandedOver,
    events.SidecarOrderEnded,
    events.ReplayAssigned,
    events.ReplayProgressed,
    events.ReplayCancelOrdered,
    events.ReplayEnded,
)


def refuse_while_frozen(frozen: events.Event | None, payloads: Iterable[Message]) -> None:
    """Refuses events that would change a frozen mesh."""
    if frozen is not None and not all(map(_is_free, payloads)):
        raise refusal(frozen)


def _is_free(payload: Message) -> bool:
    if isinstance(payload, events.SidecarOrdered):
        return bool(payload.order.replay) or reads_only(payload.order.command)
    if isinstance(payload, events.ReplayStarted):
        return payload.replay.spec.dry_run
    return isinstance(payload, FREED)


def refusal(frozen: events.Event) -> NotAllowed:
    """What those are told who want to change something; `frozen` is the event of the freeze."""
    return NotAllowed(
        "MESH_FROZEN",
        "mesh",
        f"changes are refused: {frozen.actor} froze the mesh at {frozen.time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S} UTC "
        f"({frozen.reason}); `meshctl thaw`, or ChangeService.Thaw, takes changes again",
    )


def freeze(frozen: events.Event | None, reason: str) -> events.MeshFrozen | None:
    """None when the mesh is frozen already."""
    if not reason.strip():
        raise InvalidField("reason", "say why: whoever is refused meanwhile will be told")
    return events.MeshFrozen() if frozen is None else None


def thaw(frozen: events.Event | None) -> events.MeshThawed | None:
    """None when the mesh is not frozen."""
    return None if frozen is None else events.MeshThawed()
