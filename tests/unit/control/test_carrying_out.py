"""Scheduled changes between those who take them back and the clock that carries them out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from google.protobuf.message import Message

from mesh import durations
from mesh.rpc import admin, events
from services.control.decisions.change_control.schedules import Schedules
from services.control.store.drafts import Caller, Draft

NAME = "schedules/1a2b3c4d"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class SlowJournal:
    """Appends when it is let."""

    def __init__(self, pending: events.Event) -> None:
        self.view = SimpleNamespace(schedules={NAME: pending}, frozen=None)
        self.store = self
        self.why_not_leading = ""
        self.appending = asyncio.Event()
        self.go_on = asyncio.Event()

    async def first_time(self, _caller: Caller) -> SimpleNamespace:
        return self.view

    async def answer_of(self, _request_id: str) -> None:
        return

    async def append(self, drafts: Sequence[Draft], _caller: Caller, _view: Any, **_more: Any) -> list[events.Event]:
        self.appending.set()
        await self.go_on.wait()
        self.view.schedules = {}
        return [events.Event(position=2) for _ in drafts]


class Carried:
    """Commands that were carried out."""

    def __init__(self) -> None:
        self.commands: list[Message] = []

    async def check(self, _command: Message) -> None:
        return

    def carry_out(self, command: Message, _scheduled: events.Event) -> Awaitable[admin.RuleChangeResponse]:
        self.commands.append(command)
        return asyncio.sleep(0, admin.RuleChangeResponse(revision=3))


async def test_a_change_that_is_being_cancelled_is_not_carried_out() -> None:
    scheduled = events.ChangeScheduled(name=NAME, may_be_late=durations.of_s(600))
    scheduled.time.FromDatetime(NOW + timedelta(seconds=1))
    scheduled.command.Pack(admin.RemoveRuleRequest(name="rules/r1"))
    journal, carried = SlowJournal(events.Event(position=1, change_scheduled=scheduled)), Carried()
    looks = asyncio.Event()

    def clock() -> datetime:
        if journal.appending.is_set():
            looks.set()
        return NOW + timedelta(seconds=2 if journal.appending.is_set() else 0)

    schedules = Schedules(journal, carried, clock)  # type: ignore[arg-type]
    cancelling = asyncio.create_task(schedules.cancel(NAME, Caller("anna"), lambda _: None))
    await journal.appending.wait()
    running = asyncio.create_task(schedules.run())
    await looks.wait()  # its time has come while the cancellation is on its way to the log
    looks.clear()
    await looks.wait()
    journal.go_on.set()
    assert await cancelling == 2
    running.cancel()
    assert carried.commands == []
