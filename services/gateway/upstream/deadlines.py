"""The deadlines of the requests on one connection to a broker, kept by one timer.

1. If a deadline passes, the connection ends: all requests behind would wait too.
2. While a large answer comes, or nothing is read, requests behind are not late.
3. An answer that passes while it comes is no longer among the pending ones, so no deadline covers it. It must go on
   within `STALLED_S`, as long as the gateway reads it.
"""

import asyncio
import math
from collections.abc import Iterator
from typing import Final, Protocol

from services.gateway.upstream.answer_memory import AnswerMemory
from services.gateway.upstream.awaiting import Awaiting
from services.gateway.wire.apis import api_name

LOOK_AGAIN_S: Final = 1.0
"""The time between two checks while a large answer comes, or nothing is read."""
STALLED_S: Final = 30.0


class Connection(Protocol):
    """The connection whose requests these are."""

    address: str

    @property
    def still_missing(self) -> int: ...

    def unanswered(self) -> Iterator[Awaiting]:
        """All requests that wait for an answer, sent or not."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def broke_off(self, reason: str, kind: str) -> None: ...


class Deadlines:
    """See above."""

    __slots__ = ("_connection", "_loop", "_memory", "_timer", "at", "held_back_at", "missing_before")

    def __init__(self, connection: Connection, memory: AnswerMemory) -> None:
        self._connection = connection
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.at = math.inf
        """The time of the next check."""
        self.held_back_at: float | None = None
        """The time since which no answers are read, because their receiver does not take them."""
        self.missing_before = 0
        """Bytes that were missing of a large answer at the last check."""

    def watch(self, deadline: float) -> None:
        """Check at this time, too; an infinite one is none."""
        if deadline >= self.at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.at = deadline
        self._timer = self._loop.call_at(deadline, self.check)

    def hold_back(self, held_back: bool) -> None:
        """Stop reading answers, or start again. The deadlines of pending requests move by the pause."""
        now = self._loop.time()
        if held_back:
            self.held_back_at = now
            self._connection.pause_reading()
        elif self.held_back_at is not None:
            for each in self._connection.unanswered():
                each.deadline += now - self.held_back_at
            self.held_back_at = None
            self.missing_before = 0  # the answer could not go on
            self._connection.resume_reading()

    def end(self) -> None:
        """Check no more."""
        self.at = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """End the connection if a request is late; otherwise say when to check again."""
        self.end()
        first = min(self._connection.unanswered(), key=lambda each: each.deadline, default=None)
        address, now = self._connection.address, self._loop.time()
        before, missing = self.missing_before, self._connection.still_missing
        self.missing_before = missing
        if first is None:
            if not missing:
                return
            if self.held_back_at is None and missing == before:
                self._connection.broke_off(f"{address} stopped in the middle of an answer", "timeout")
            else:
                self.watch(now + STALLED_S)
        elif self._memory.is_wanting and self.held_back_at is not None and now - self.held_back_at >= STALLED_S:
            self._connection.broke_off(f"no memory for a large answer of {address} in time", "memory")
        elif self.held_back_at is not None or (missing and missing != before):
            self.watch(max(first.deadline, now + LOOK_AGAIN_S))
        elif first.deadline <= now:
            self._connection.broke_off(f"{api_name(first.api_key)}: no answer from {address} in time", "timeout")
        else:
            self.watch(first.deadline)
