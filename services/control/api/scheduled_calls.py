"""Calls of RuleService that a schedule makes: by the methods themselves, in the name of the actor of the schedule."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from mesh.rpc import admin, events
from services.control.api.access_gate import AccessGate
from services.control.api.auditing import Introduction
from services.control.api.calls import Calls
from services.control.api.required import check_required
from services.control.api.rule_service import RuleService
from services.control.domain.access.grants import stream_of
from services.control.domain.change_control.schedules import request_id_of
from services.control.domain.errors import NotAllowed


class ScheduledCalls:
    """See `Commands` in decisions/change_control/schedules.py."""

    def __init__(self, calls: Calls, rules: RuleService, access: AccessGate) -> None:
        self._calls = calls
        self._rules = rules
        self._access = access

    async def check(self, command: Message) -> None:
        """Checks a command in the call that schedules it."""
        check_required(command, "command.")
        wanted = _copy(command)
        wanted.options.validate_only = True
        await self._method(command)(wanted, None)

    async def carry_out(self, command: Message, scheduled: events.Event) -> admin.RuleChangeResponse:
        """Makes a call with a request_id and an audit event of its own. NotAllowed if the actor is shut out by now."""
        if self._access.policy.is_shut_out(scheduled.actor):
            raise NotAllowed(
                "ACTOR_SHUT_OUT",
                stream_of(scheduled.actor),
                f"a decision has taken all rights from {scheduled.actor}, who scheduled the change",
            )
        wanted = _copy(command)
        wanted.options.request_id = request_id_of(scheduled)
        wanted.options.reason = wanted.options.reason or scheduled.reason
        who = Introduction(
            scheduled.actor,
            scheduled.change_scheduled.name,
            scheduled.trace_id,
            on_behalf_of=scheduled.on_behalf_of,
            proposal=scheduled.proposal,
        )
        method = self._method(command)
        return await self._calls.make(f"/mesh.v1.RuleService/{method.__name__}", method, wanted, who)

    def _method(self, command: Message) -> Any:
        """`SetRule` for a SetRuleRequest."""
        return getattr(self._rules, command.DESCRIPTOR.name.removesuffix("Request"))


def _copy(command: Message) -> Any:
    wanted = type(command)()
    wanted.CopyFrom(command)
    return wanted
