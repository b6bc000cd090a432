"""The bound on records that wait for delivery. All code runs on the event loop's thread, so it needs no lock.

Batches are admitted in the order of their arrival. A batch that finds no room waits, for a bounded time. A batch larger
than the bound itself is admitted alone, so that it cannot wait for ever.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from services.sidecar.telemetry import metrics


@dataclass(frozen=True, slots=True)
class Load:
    """The records and bytes that one batch puts into the queue."""

    records: int
    bytes: int


class Admission:
    """Counts records and bytes in the queue, and admits batches."""

    def __init__(self, *, max_records: int, max_bytes: int) -> None:
        self._max = Load(max_records, max_bytes)
        self._records = 0
        self._bytes = 0
        self._waiting: deque[tuple[Load, asyncio.Future[None]]] = deque()

    async def enter(self, load: Load, timeout: float) -> bool:
        """Waits for room, `timeout` seconds at most; False if the queue had no room in that time."""
        if not self._waiting and self._has_room(load):
            self._add(load, 1)
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((load, turn))
        metrics.waiting_batches.inc()
        try:
            await asyncio.wait([turn], timeout=timeout)
        except asyncio.CancelledError:
            if turn.done():
                self.leave(load)
            raise
        finally:
            metrics.waiting_batches.dec()
            if not turn.done():
                turn.cancel()
                self._admit()  # the batches behind the batch that gave up may fit
        return not turn.cancelled()

    def leave(self, load: Load) -> None:
        """The batch is delivered, or failed."""
        self._add(load, -1)
        self._admit()

    def _has_room(self, load: Load) -> bool:
        if not self._records:
            return True
        return self._records + load.records <= self._max.records and self._bytes + load.bytes <= self._max.bytes

    def _admit(self) -> None:
        while self._waiting:
            load, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._has_room(load):
                    return
                self._add(load, 1)
                turn.set_result(None)
            self._waiting.popleft()

    def _add(self, load: Load, sign: int) -> None:
        self._records += sign * load.records
        self._bytes += sign * load.bytes
        metrics.queued_records.set(self._records)
        metrics.queued_bytes.set(self._bytes)
