"""Changes for a given time: kept in the log, checked when they are scheduled, decided when they are due.

Theory of operation
1. The leading control checks every second, or sooner if a change is due sooner. It carries out the due changes one
   after the other, each as a call of the user who scheduled it. So the change has the code, the checks, the rollout and
   the audit of a call.
2. That call has a request_id which follows from the schedule. If control stops between the decision and
   ScheduledChangeEnded, the next control makes the same call. It gets the first call's answer, and records the end.
3. A change may fail for reasons of control's own: PostgreSQL does not answer, control does not lead any more, or other
   changes wait before it. Then control tries again, for as long as the change may be late. Any other refusal is the
   outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Protocol

import structlog
from google.protobuf.message import Message
from prometheus_client import Counter

from mesh.routing import InvalidRuleError
from mesh.rpc import admin, events
from mesh.rpc.errors import RpcError
from services.control.decisions.answers import ReplayedFailure
from services.control.decisions.leading import looks
from services.control.decisions.short_ids import new_id
from services.control.domain.change_control import schedules
from services.control.domain.change_control.freezing import refusal
from services.control.domain.errors import Conflict, Refusal, Unavailable
from services.control.steady_clock import Clock
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

LOOK_EVERY = 1.0
"""The longest time in seconds between two checks."""
RETRY_AFTER = 5.0
"""Seconds after which control tries a change again that failed for reasons of control's own."""
PASSING = ("NOT_WRITABLE", "STOPPING", "STARTING", "TOO_MANY_WRITES", "BUSY")
"""Reasons of refusals whose cause is control itself, and that are temporary."""

Answer = Callable[[events.Event], StoredAnswer | None]
"""The answer to store for a request_id, given the event."""

log = structlog.get_logger(__name__)
ended_total = Counter(
    "kafka_mesh_control_scheduled_changes_total", "Scheduled changes that came to an end.", ["outcome"]
)


class Commands(Protocol):
    """The calls that can be scheduled, as `api/scheduled_calls.py` makes them."""

    async def check(self, command: Message) -> None:
        """Raises the error with which control would refuse the command now."""

    def carry_out(self, command: Message, scheduled: events.Event) -> Awaitable[admin.RuleChangeResponse]:
        """Makes the call for the user who scheduled it."""


class Schedules:
    """Commands about scheduled changes, and the loop that carries out due changes."""

    def __init__(self, journal: Journal, commands: Commands, clock: Clock) -> None:
        self.clock = clock
        self._journal = journal
        self._commands = commands
        self._running = ""
        self._cancelling: list[str] = []
        """The changes that calls are cancelling now; one entry for each call."""

    async def schedule(self, request: admin.ScheduleChangeRequest, caller: Caller, answer: Answer) -> events.Event:
        """The event of a command that control would carry out if its time were now."""
        view = await self._journal.first_time(caller)
        pending = view.schedules
        event = schedules.schedule(pending, new_id(schedules.SCHEDULES, pending), request, self.clock())
        await self._commands.check(schedules.command_of(request.command))
        [new] = await self._journal.append(
            [Draft(event.name, event)],
            caller,
            view,
            rests_on=lambda view: event.name in view.schedules,
            answer=lambda new, _: answer(new[0]),
        )
        return new

    async def cancel(self, name: str, caller: Caller, answer: Answer) -> int:
        """The position of the event. Conflict when control carries the change out, or has done so."""
        await self._journal.first_time(caller)
        event = schedules.get(self._journal.view.schedules, name)
        self._cancelling.append(name)  # the change may become due before its end is in the log
        try:
            if name == self._running or await self._journal.store.answer_of(schedules.request_id_of(event)) is not None:
                raise Conflict(
                    "BEING_CARRIED_OUT", f"{name} is being carried out: too late to cancel it; see the history"
                )
            new = await self._end(event, caller, events.SCHEDULE_OUTCOME_CANCELLED, answer=answer)
        finally:
            self._cancelling.remove(name)
        return new.position

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, self._until_next_look):
            try:
                for event in schedules.due(self._journal.view.schedules, self.clock()):
                    await self._see_through(event)
            except (Refusal, StoreUnavailableError, TimeoutError) as error:
                log.warning("a scheduled change is tried again", reason=str(error) or "it took too long")
                await asyncio.sleep(RETRY_AFTER)

    def _until_next_look(self) -> float:
        coming = schedules.in_order(self._journal.view.schedules)
        if not coming:
            return LOOK_EVERY
        seconds = (coming[0].change_scheduled.time.ToDatetime(UTC) - self.clock()).total_seconds()
        return seconds if 0 < seconds < LOOK_EVERY else LOOK_EVERY

    async def _see_through(self, event: events.Event) -> None:
        """Carries the change out and records its outcome; raises an error if control has to try again."""
        name, caller = event.change_scheduled.name, Caller(CONTROL, "its time had come")
        if name in self._cancelling:
            return
        self._running = name
        try:
            known = await self._journal.store.answer_of(schedules.request_id_of(event))
            frozen = self._journal.view.frozen
            if known is None and schedules.is_missed(event, self.clock()):
                await self._end(event, caller, events.SCHEDULE_OUTCOME_MISSED, problem="control was away at its time")
            elif known is None and frozen is not None:
                await self._end(event, caller, events.SCHEDULE_OUTCOME_REFUSED, problem=str(refusal(frozen)))
            else:
                await self._carry_out(event, caller)
        finally:
            self._running = ""

    async def _carry_out(self, event: events.Event, caller: Caller) -> None:
        try:
            command = schedules.command_of(event.change_scheduled.command)
            response = await self._commands.carry_out(command, event)
        except (StoreUnavailableError, TimeoutError):
            raise
        except Exception as error:
            if is_passing(error):
                raise
            await self._end(
                event, caller, events.SCHEDULE_OUTCOME_REFUSED, problem=problem_of(event.change_scheduled.name, error)
            )
        else:
            await self._end(event, caller, events.SCHEDULE_OUTCOME_DONE, revision=response.revision)

    async def _end(
        self,
        event: events.Event,
        caller: Caller,
        outcome: events.ScheduleOutcome.ValueType,
        *,
        revision: int = 0,
        problem: str = "",
        answer: Answer | None = None,
    ) -> events.Event:
        name = event.change_scheduled.name
        [new] = await self._journal.append(
            [Draft(name, schedules.ended(event, outcome, revision, problem))],
            caller,
            self._journal.view,
            rests_on=lambda view: name in view.schedules,
            answer=None if answer is None else lambda new, _: answer(new[0]),
        )
        label = events.ScheduleOutcome.Name(outcome).removeprefix("SCHEDULE_OUTCOME_").lower()
        ended_total.labels(label).inc()
        log.info("a scheduled change came to its end", name=name, outcome=label, revision=revision, problem=problem)
        return new


def is_passing(error: Exception) -> bool:
    """Whether the cause of a refusal is control itself, and temporary."""
    return isinstance(error, Unavailable | Conflict) and error.reason in PASSING


def problem_of(name: str, error: Exception) -> str:
    """Why a call that control makes for somebody was refused, as a sentence. `name`: what asks for the call."""
    match error:
        case Refusal() | InvalidRuleError() | RpcError():
            return str(error)
        case ReplayedFailure():
            return str(error.status.message)
        case _:
            log.exception("a scheduled or approved change failed", name=name, exc_info=error)
            return "control failed at this change; its log says how"
