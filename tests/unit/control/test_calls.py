"""What is on record of a call, however it ends."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from mesh.rpc import admin
from services.control.api import calls as calls_module
from services.control.api.auditing import Introduction, audit_event
from services.control.api.calls import Calls, caller, present_record


class Trail:
    """Remembers what it is to keep."""

    def __init__(self) -> None:
        self.events: list[admin.AuditEvent] = []
        self.kept = 0

    async def keep(self, event: admin.AuditEvent) -> None:
        self.events.append(event)

    async def were_kept(self, number: int) -> None:
        self.kept += number


class OpenGate:
    """Lets everything in."""

    async def admit(self, _method: str, _request: Any) -> None:
        return

    async def made(self, _method: str, behaviour: Any, request: Any, context: Any) -> Any:
        return await behaviour(request, context)


async def test_a_command_whose_caller_goes_away_is_on_record() -> None:
    begun = asyncio.Event()

    async def decide(_request: admin.SetRuleRequest, _context: object) -> admin.RuleChangeResponse:
        begun.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    trail = Trail()
    calls = Calls(trail, OpenGate(), OpenGate(), OpenGate())  # type: ignore[arg-type]
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


class Context:
    """Of a client that says nothing of itself."""

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def invocation_metadata(self) -> None:
        return

    def time_remaining(self) -> None:
        return

    def peer(self) -> str:
        return "ipv4:10.1.2.3:4711"


async def test_a_call_without_a_trace_gets_one_for_its_events_and_its_record() -> None:
    seen: list[str] = []

    async def decide(request: admin.SetRuleRequest, _context: object) -> admin.RuleChangeResponse:
        seen.append(caller(request).trace_id)
        return admin.RuleChangeResponse()

    trail = Trail()
    calls = Calls(trail, OpenGate(), OpenGate(), OpenGate())  # type: ignore[arg-type]
    handler: Any = grpc.unary_unary_rpc_method_handler(decide)
    wrapped = await calls.intercept_service(
        lambda _: asyncio.sleep(0, handler), SimpleNamespace(method="/mesh.v1.RuleService/SetRule")
    )
    for _ in range(2):
        await wrapped.unary_unary(admin.SetRuleRequest(), Context())
    assert [event.trace_id for event in trail.events] == seen
    assert len(set(seen)) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in seen)


async def test_the_event_that_is_stored_with_a_decision_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(*arguments: Any) -> admin.AuditEvent:
        made.append(arguments[0])
        return audit_event(*arguments)

    async def decide(_request: admin.SetRuleRequest, _context: object) -> admin.RuleChangeResponse:
        record = present_record()
        assert record is not None
        assert record.event_of(7) is not None
        record.ended(stored=True)
        return admin.RuleChangeResponse(revision=7)

    monkeypatch.setattr(calls_module, "audit_event", counted)
    trail = Trail()
    calls = Calls(trail, OpenGate(), OpenGate(), OpenGate())  # type: ignore[arg-type]
    await calls.make("/mesh.v1.RuleService/SetRule", decide, admin.SetRuleRequest(), Introduction("anna@desk"))
    assert (len(made), trail.kept, trail.events) == (1, 1, [])
