"""A reading of the log ends when it is told to, also where the library that reads does not."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from services.router.agents import event_log
from services.router.agents.event_log import EventLog
from services.router.agents.home import HomeAccess

WITHIN_S = 10.0


class Faust:
    """An app that does not end: cancelled while it waits for a part, it goes on to wait for the next, as Faust does."""

    def __init__(self) -> None:
        self.parts_given_up = 0

    async def stop(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        self.parts_given_up += 1
        await asyncio.Event().wait()


async def test_what_does_not_stop_is_left_behind_also_where_it_takes_no_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_log, "STOP_TIMEOUT", 0.01)
    reading = EventLog("router", HomeAccess(("127.0.0.1:1",)), "mesh.events", lambda *_record: None)
    faust = reading._app = Faust()
    async with asyncio.timeout(WITHIN_S):
        await reading.stop()
        while not faust.parts_given_up:
            await asyncio.sleep(0)
