"""Routing writes run one after another. A write waits a bounded time for the write before it, a rollout included.

A write that has nothing left but to wait for its commit gives its turn on (`begin`).

If the client gives a call up, its write still runs to its end: a rollout must be decided, whoever asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog
from prometheus_client import Gauge

from services.control.domain.errors import Conflict, Unavailable

WAIT_FOR_TURN = 20.0
"""Seconds that a write waits for earlier writes: enough for a rollout, and for gateways to connect again."""
MAX_WAITING = 100
"""The most waiting writes; control refuses further writes at once."""

T = TypeVar("T")

log = structlog.get_logger(__name__)
waiting_gauge = Gauge("kafka_mesh_control_routing_writes_waiting", "Routing writes that wait for their turn or run.")


class Turns:
    """Gives routing writes their turn."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def take(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in its turn; `work` runs to its end even when the caller goes away."""
        self._check_room(work)
        return await self._run(self._in_turn(work))

    async def begin(self, work: Coroutine[Any, Any, Coroutine[Any, Any, T]]) -> T:
        """The same, and runs what `work` returns after its turn."""

        async def both() -> T:
            return await (await self._in_turn(work))

        self._check_room(work)
        return await self._run(both())

    def _check_room(self, work: Coroutine[Any, Any, object]) -> None:
        if self._closed:
            work.close()
            raise Unavailable("STOPPING", "control is stopping: ask again in a moment, or another replica")
        if len(self._running) >= MAX_WAITING:
            work.close()
            raise Unavailable("TOO_MANY_WRITES", f"{MAX_WAITING} changes wait for their turn: retry later")

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        self._running.add(task)
        waiting_gauge.set(len(self._running))
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def drain(self, seconds: float) -> None:
        """Takes no more writes, and waits at most `seconds` for the end of the running writes."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(WAIT_FOR_TURN):
                await self._lock.acquire()
        except TimeoutError:
            work.close()
            raise Conflict(
                "BUSY",
                f"another change has been under way for more than {WAIT_FOR_TURN:.0f} s; see the status, then retry",
            ) from None
        try:
            return await work
        finally:
            self._lock.release()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        waiting_gauge.set(len(self._running))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("routing write refused", reason=str(error))  # the caller gets the error, unless it has gone
