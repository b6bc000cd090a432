"""Records of an instance in batches; the stream's window bounds the unacknowledged records."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from services.sidecar.consuming.cursor import cursor_of
from services.sidecar.consuming.held_records import Unacknowledged
from services.sidecar.consuming.open_read import OpenRead
from services.sidecar.formats import Format
from services.sidecar.records import Consumed, Partition

MAX_UNACKNOWLEDGED_BYTES = 16 * 1024 * 1024
"""The bytes that a window may keep in memory, whatever number of records it allows."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """One stream."""

    max_bytes: int
    """The bytes of one batch."""
    quiet_seconds: float
    """After so long without records, an empty batch shows that the stream lives."""
    window: int | None
    """Records that may wait for their acknowledgement; None if the stream needs none."""
    format: Format | None = None
    starts: Mapping[Partition, int] = field(default_factory=dict)
    """The offsets at which to continue, for partitions whose last record the client has named."""


class RecordStream:
    """Used within `ConsumerInstance.stream`."""

    def __init__(
        self, request: StreamRequest, max_records: int, finish: Callable[[OpenRead], Awaitable[list[Consumed]]]
    ) -> None:
        self.unacknowledged = (
            None if request.window is None else Unacknowledged(request.window, MAX_UNACKNOWLEDGED_BYTES)
        )
        self._request = request
        self._max_records = max_records
        self._finish = finish
        self._positions = dict(request.starts)
        self._has_ended = False
        self._moved = asyncio.Event()

    async def next(self) -> list[Consumed] | None:
        """A batch, empty after a quiet while; None when the stream ends. Fault when nothing can be read."""
        quiet_at = time.monotonic() + self._request.quiet_seconds
        if not await self._has_room(quiet_at):
            return None if self._has_ended else []
        patience = max(quiet_at - time.monotonic(), 0)
        records = await self._finish(
            OpenRead(
                max_records=self._max_records,
                max_bytes=self._request.max_bytes,
                min_bytes=0,
                patience=patience,
                join_patience=patience,
                format=self._request.format,
                unacknowledged=self.unacknowledged,
            )
        )
        return records if records or not self._has_ended else None

    def cursor_after(self, record: Consumed) -> str:
        """How far the stream has come with this record. To be asked for each record, in their order."""
        self._positions[Partition(record.topic, record.partition)] = record.offset + 1
        return cursor_of(self._positions)

    def window_moved(self) -> None:
        """Something was acknowledged."""
        self._moved.set()

    def end(self) -> None:
        """Gives the records that are there, and ends the stream."""
        self._has_ended = True
        self._moved.set()

    async def _has_room(self, until: float) -> bool:
        """Waits for acknowledgements while the window is full."""
        while not self._has_ended:
            self._moved.clear()
            if self.unacknowledged is None or self.unacknowledged.room > 0:
                return True
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
                    await self._moved.wait()
            except TimeoutError:
                return False
        return False
