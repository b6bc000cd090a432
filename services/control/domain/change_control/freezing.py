"""A frozen mesh: control refuses every change, and says who froze the mesh, when and why, until a user thaws it.

`FREED` is the one list of events that a frozen mesh allows: thawing, taking a role away, proposals, signatures of the
log, and the course and end of work that had begun before the freeze. Three kinds of event are allowed beside this list.
One is an order that asks a sidecar something or belongs to such work; another is a replay that only counts. The third
is a change of ACLs that only takes rights away. Control refuses every other event, even an event that is new to this
file. Reports of members are no events, so control still takes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from google.protobuf.message import Message

from mesh.rpc import events
from services.control.domain.acls.acls import narrows
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.sidecars.commands import reads_only

FREEZE_STREAM = "freeze"
FREED: tuple[type[Message], ...] = (
    events.MeshThawed,
    events.RoleRevoked,
    events.UserDeleted,
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
    events.ChangeProposed,
    events.ProposalApproved,
    events.ProposalClosed,
    events.LogSigned,
    events.DrainPaused,
    events.DrainCancelled,
    events.DrainTopicLeft,
    events.DrainMoveEnded,
    events.DrainEnded,
    events.StandbyTopicsSet,
    events.StandbyEnded,
    events.FailOverHeld,
    events.FailOverEnded,
    events.FailBackTopicsSet,
    events.FailBackEnded,
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
    if isinstance(payload, events.AclsCreated | events.AclsDeleted):
        return narrows(payload)
    return isinstance(payload, FREED)


def refusal(frozen: events.Event) -> NotAllowed:
    """The refusal of a change; `frozen` is the event of the freeze."""
    return NotAllowed(
        "MESH_FROZEN",
        "mesh",
        f"changes are refused: {frozen.actor} froze the mesh at {frozen.time.ToDatetime(UTC):%Y-%m-%d %H:%M:%S} UTC "
        f"({frozen.reason}); `meshctl thaw`, or ChangeControlService.Thaw, takes changes again",
    )


def freeze(frozen: events.Event | None, reason: str) -> events.MeshFrozen | None:
    """The event of a freeze; None when the mesh is frozen already."""
    if not reason.strip():
        raise InvalidField("reason", "say why: each refusal while the mesh is frozen shows the reason")
    return events.MeshFrozen() if frozen is None else None


def thaw(frozen: events.Event | None) -> events.MeshThawed | None:
    """The event of a thaw; None when the mesh is not frozen."""
    return None if frozen is None else events.MeshThawed()
