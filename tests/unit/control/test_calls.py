"""What is on record of a call, however it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mesh.rpc import admin
from services.control.api.auditing import Introduction
from services.control.api.calls import Calls


class Trail:
    """Remembers what it is to keep."""

    def __init__(self) -> None:
        self.events: list[admin.AuditEvent] = []

    async def keep(self, event: admin.AuditEvent) -> None:
        self.events.append(event)


class OpenGate:
    """Lets everything in."""

    async def admit(self, _method: str, _request: Any) -> None:
        return


async def test_a_command_whose_caller_goes_away_is_on_record() -> None:
    begun = asyncio.Event()

    async def decide(_request: admin.SetRuleRequest, _context: object) -> admin.RuleChangeResponse:
        begun.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    trail = Trail()
    calls = Calls(trail, OpenGate())  # type: ignore[arg-type]
    call = asyncio.create_task(
        calls.make("/mesh.v1.RuleService/SetRule", decide, admin.SetRuleRequest(), Introduction("anna@desk"))
    )
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    [event] = trail.events
    assert (event.actor, event.code) == ("anna@desk", "CANCELLED")
    assert "goes on" in event.problem
