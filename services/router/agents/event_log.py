"""One reading of the log: a consumer without a group, with a given start offset.

There are no committed offsets, no session to wait for after a crash, and no rebalance: the reading leaves nothing on
the cluster, and skips no record because another consumer has read it. `docs/explanation/faust.md` says why not Faust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from mesh.cluster_access import ClusterAccess, reason_of
from mesh.event_log.pieces import Headers
from services.router.agents.home_consumer import TIMEOUT, close, home_consumer
from services.router.agents.log_topic import EventLogError

Receive = Callable[[bytes, int, Headers], None]
"""Called with the value, the offset and the headers of each record, in order."""

POLL = 1.0
"""Seconds that one wait for records takes at most."""
RECORDS_PER_TURN = 16
"""Records of a long log that are folded in a row, before data planes get their turn on the loop."""


class EventLog:
    """One reading: start it, run it, stop it, each once (`run` as often as one likes)."""

    def __init__(
        self, client_id: str, home: ClusterAccess, topic: str, receive: Receive, first_offset: int = 0
    ) -> None:
        """What `receive` raises ends the reading. `first_offset`: 0 stands for the first record that the log has."""
        self._home = home
        self._partition = TopicPartition(topic, 0)
        self._receive = receive
        self._first_offset = first_offset
        self._consumer = home_consumer(home, client_id)
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Begins to read; the offset that the log ended at. EventLogError when the cluster can't be reached."""
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._consumer.start()
                self._consumer.assign([self._partition])
                first_offset = self._first_offset
                if first_offset == 0:  # a log that was restored begins behind the records that it has lost
                    first_offset = (await self._consumer.beginning_offsets([self._partition]))[self._partition]
                self._consumer.seek(self._partition, first_offset)
        except (KafkaError, TimeoutError, OSError) as error:
            raise EventLogError(f"home cluster {self._home}: {reason_of(error)}") from error
        end = await self.present_end()
        self._reading = asyncio.create_task(self._read(), name="read the log")
        return end

    async def present_end(self) -> int:
        """The end offset of the log at the call or later. EventLogError when the cluster does not answer.

        While nothing happens, the broker answers after the fetch that waits on the same connection: in half a second.
        """
        try:
            async with asyncio.timeout(TIMEOUT):
                ends = await self._consumer.end_offsets([self._partition])
        except (KafkaError, TimeoutError, OSError) as error:
            raise EventLogError(f"home cluster {self._home}: {reason_of(error)}") from error
        return int(ends[self._partition])

    async def run(self, seconds: float) -> None:
        """Reads on for so long; raises what ends the reading before."""
        assert self._reading is not None, "it was started"
        await asyncio.wait({self._reading}, timeout=seconds)
        if self._reading.done():
            self._reading.result()

    async def stop(self) -> None:
        """Ends the reading, within the bound of a close."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)  # `run` has raised what there was to raise
        await close(self._consumer)

    def end_offset(self) -> int:
        """The end offset of the log in the last fetch; 0 before the first fetch."""
        return int(self._consumer.highwater(self._partition) or 0)

    def last_answer(self) -> float | None:
        """When the cluster last answered, in seconds since 1970; it does so twice a second while nothing happens."""
        milliseconds = self._consumer.last_poll_timestamp(self._partition)
        return None if milliseconds is None else milliseconds / 1000

    async def _read(self) -> None:
        while True:
            for record in await self._next_records():
                self._receive(record.value or b"", record.offset, record.headers)
                if record.offset % RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)

    async def _next_records(self) -> list[ConsumerRecord]:
        try:
            records = await self._consumer.getmany(self._partition, timeout_ms=int(1000 * POLL))
        except OffsetOutOfRangeError as error:
            lost = f"{self._partition.topic} on {self._home} lost records or is another topic"
            raise EventLogError(f"{lost}: no record is where the reading was: {error}") from error
        except KafkaError as error:
            raise EventLogError(f"home cluster {self._home}: {reason_of(error)}") from error
        return list(records.get(self._partition, ()))
