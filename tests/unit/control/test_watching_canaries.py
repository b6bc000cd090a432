"""A canary that another control has begun: it is judged when its gateways are heard again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message

from mesh.rpc import admin, events
from services.control.decisions.members import canaries as canaries_module
from services.control.decisions.members.canaries import Canaries
from services.control.decisions.members.members import Members

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REVISION = 7
TRYING = admin.Member(
    name="members/g1", kind=admin.MEMBER_KIND_GATEWAY, revision=REVISION, phase=admin.MEMBER_PHASE_TRYING
)


class Ends:
    """How rollouts were closed."""

    def __init__(self) -> None:
        self.payloads: list[Message] = []
        self.one = asyncio.Event()

    async def take(self, work: Coroutine[Any, Any, int]) -> int:
        return await work

    async def close(self, payload: Message, *_: Any) -> int:
        self.payloads.append(payload)
        self.one.set()
        return REVISION + 1


async def test_a_control_that_begins_to_lead_waits_for_gateways_that_are_on_their_way_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(canaries_module, "LOOK_EVERY", 0.001)
    change = events.Event(position=REVISION)
    change.rule_set_changed.canary.duration.FromSeconds(1)
    change.time.FromDatetime(NOW - timedelta(minutes=1))
    journal = SimpleNamespace(view=SimpleNamespace(rollout=change), why_not_leading="")
    members, ends = Members(), Ends()
    looks = 0
    away = members.away

    def looked() -> dict[str, float]:
        nonlocal looks
        looks += 1
        return away()

    monkeypatch.setattr(Members, "away", lambda _: looked())
    members.recall({"members/g1": (TRYING, True)})
    canaries = Canaries(journal, ends, members, ends, lambda: NOW)  # type: ignore[arg-type]
    watching = asyncio.create_task(canaries.run())
    while looks < 5 and not ends.payloads:
        await asyncio.sleep(0)
    assert ends.payloads == []

    members.report("stream", admin.Member(name="members/r1"), [TRYING])
    await ends.one.wait()
    watching.cancel()
    assert ends.payloads[0] == events.RolloutSwitched(revision=REVISION)
