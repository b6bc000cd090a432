"""Reads and streams of one instance: one at a time, each answered in bounded time, whatever Kafka does.

A read is many short calls on the instance's thread, so no other call has to wait for the read.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import structlog

from services.sidecar.consuming.consumer_thread import GRACE_SECONDS, ConsumerThread
from services.sidecar.consuming.group_consumer import SEEK_SECONDS
from services.sidecar.consuming.instance_values import InstanceId, InstanceOptions, ReadRequest
from services.sidecar.consuming.open_read import OpenRead
from services.sidecar.consuming.record_stream import RecordStream, StreamRequest
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.records import Consumed

TAKE_OVER_SECONDS = 1.0
"""How long a stream that follows another waits for that one's end: its client may just have come back."""

log = structlog.get_logger(__name__)


class Reads:
    """The reads of one instance."""

    def __init__(self, id_: InstanceId, options: InstanceOptions, max_records: int, thread: ConsumerThread) -> None:
        self._id = id_
        self._options = options
        self._max_records = max_records
        self._thread = thread
        self._lock = asyncio.Lock()
        self._stream: RecordStream | None = None
        self.are_interrupted = False

    async def read(self, request: ReadRequest) -> list[Consumed]:
        """Records; Fault when nothing can be read."""
        reading = OpenRead.of(request, self._options, self._max_records)
        patience = TAKE_OVER_SECONDS if self._stream is not None else reading.join_patience + GRACE_SECONDS
        async with self._alone(patience):
            reading.started = time.monotonic()
            return await self._finish(reading)

    async def give_back(self, records: list[Consumed]) -> None:
        """The backend went away before it could have these records of its last answer."""
        if not await self._thread.call(lambda consumer: consumer.take_back(records)):
            log.warning("records did not reach the backend", instance=self._id.instance, records=len(records))

    @contextlib.asynccontextmanager
    async def stream(self, request: StreamRequest) -> AsyncIterator[RecordStream]:
        """Records until the context ends. Records that are not acknowledged by then come again."""
        stream = RecordStream(request, self._max_records, self._finish)
        async with self._alone(TAKE_OVER_SECONDS):
            self._stream = stream
            try:
                await self._thread.call(
                    lambda consumer: consumer.open_stream(stream.unacknowledged, dict(request.starts)),
                    SEEK_SECONDS + GRACE_SECONDS,
                )
                yield stream
            finally:
                self._stream = None
                self._thread.post(lambda consumer: consumer.close_stream())

    def window_moved(self) -> None:
        """Something was committed: the stream, if there is one, may go on."""
        if self._stream is not None:
            self._stream.window_moved()

    def interrupt(self) -> None:
        """A read that waits answers now; streams end."""
        self.are_interrupted = True
        if self._stream is not None:
            self._stream.end()

    @contextlib.asynccontextmanager
    async def _alone(self, patience: float) -> AsyncIterator[None]:
        """One read, or one stream, at a time."""
        self._thread.refuse_if_busy()
        with self._thread.in_use():
            try:
                async with asyncio.timeout(patience):
                    await self._lock.acquire()
            except TimeoutError:
                raise Fault(
                    FaultKind.ILLEGAL_CONSUMER_STATE,
                    f"Another read, or a stream, of instance {self._id.instance} goes on; end it before the next",
                ) from None
            try:
                yield
            finally:
                self._lock.release()

    async def _finish(self, reading: OpenRead) -> list[Consumed]:
        """The answer of a read, however many calls it takes."""
        try:
            while True:
                is_last = self.are_interrupted
                answer = await self._thread.call(
                    lambda consumer: consumer.advance(reading, is_last=is_last)  # noqa: B023  # awaited at once
                )
                if answer is not None:
                    return answer
        except BaseException:
            reading.is_given_up = True
            self._thread.post(lambda consumer: consumer.abandon(reading))
            raise
