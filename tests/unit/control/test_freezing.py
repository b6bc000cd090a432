"""A frozen mesh refuses every event but those on the list, and says who froze it, when and why."""

from __future__ import annotations

import pytest

from mesh.rpc import events, replays
from services.control.domain.change_control.freezing import FREED, freeze, refuse_while_frozen, thaw
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.store.drafts import PAYLOADS

FROZEN = events.Event(position=7, actor="ada", reason="inventory", mesh_frozen=events.MeshFrozen())
FROZEN.time.FromJsonString("2026-01-01T12:00:00Z")


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.DESCRIPTOR.name)
def test_every_event_is_refused_that_is_not_on_the_list(payload: type) -> None:
    refuse_while_frozen(None, [payload()])
    if payload in FREED:
        refuse_while_frozen(FROZEN, [payload()])
        return
    with pytest.raises(NotAllowed) as refused:
        refuse_while_frozen(FROZEN, [payload()])
    assert refused.value.message == (
        "changes are refused: ada froze the mesh at 2026-01-01 12:00:00 UTC (inventory); `meshctl thaw`, or "
        "ChangeControlService.Thaw, takes changes again"
    )


def test_a_frozen_mesh_may_be_asked_and_its_sidecars_say_what_they_did() -> None:
    def ordered(command: events.SidecarCommand) -> events.SidecarOrdered:
        return events.SidecarOrdered(order=events.SidecarOrder(command=command))

    refuse_while_frozen(FROZEN, [ordered(events.SidecarCommand(check_health=events.CheckHealth()))])
    refuse_while_frozen(FROZEN, [events.SidecarOrderEnded(name="orders/1")])
    with pytest.raises(NotAllowed):
        refuse_while_frozen(FROZEN, [ordered(events.SidecarCommand(pause=events.PauseInstance()))])


def test_replays_that_have_begun_go_on_and_new_ones_may_only_count() -> None:
    resume = events.SidecarCommand(resume=events.ResumeInstance())
    part = events.SidecarOrdered(order=events.SidecarOrder(command=resume, replay="replays/1"))
    counting = replays.Replay(spec=replays.ReplaySpec(dry_run=True))
    refuse_while_frozen(FROZEN, [part, events.ReplayStarted(replay=counting)])
    with pytest.raises(NotAllowed):
        refuse_while_frozen(FROZEN, [events.ReplayStarted(replay=replays.Replay())])


def test_a_freeze_has_a_reason_and_comes_once() -> None:
    assert freeze(None, "inventory") == events.MeshFrozen()
    assert freeze(FROZEN, "again") is None
    with pytest.raises(InvalidField, match="say why"):
        freeze(None, " ")


def test_only_what_is_frozen_is_thawed() -> None:
    assert thaw(FROZEN) == events.MeshThawed()
    assert thaw(None) is None
