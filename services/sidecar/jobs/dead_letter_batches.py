"""Gives one batch of dead letters to the backend again, at a caller's request.

The group only keeps the committed offsets: nobody joins the group. A record that fails again becomes a dead letter
again, behind the others; on its last retry it is not written again. If the backend does not answer in time, the batch
stays in place.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from services.sidecar.auditing.events import settled
from services.sidecar.consuming.partition_reader import PartitionReader
from services.sidecar.consuming.positions import Position
from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.delivering.writing import write_all
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.jobs.ledger import refuse_if_final
from services.sidecar.jobs.run import JobTools
from services.sidecar.jobs.side_by_side import by_partition, side_by_side
from services.sidecar.records import Commit, Partition, RawRecord

LINGER_SECONDS = 0.01
T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch."""

    records: int
    rolled_back: bool = False
    last: Position | None = None
    """The position of the batch's last record; after a rollback, of the first record of that partition."""


class DeadLetterBatches:
    """The replay of dead letters of one sidecar, a batch at a time."""

    def __init__(self, tools: JobTools, *, max_bytes: int) -> None:
        self._tools = tools
        self._max_bytes = max_bytes
        self._lock = asyncio.Lock()

    async def batch(
        self, group: str, topics: Sequence[str], *, wait: float, patience: float, keeps_failures: bool
    ) -> Batch:
        """Waits `wait` seconds for records, and `patience` for the backend. Fault when Kafka does not take part."""
        async with self._lock:
            thread = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")
            try:
                reader = await _run(thread, lambda: PartitionReader(self._tools.consumer, group))
                try:
                    records = await _run(thread, lambda: self._next(reader, topics, wait))
                    if not records:
                        return Batch(0)
                    return await self._give(reader, thread, group, records, patience, keeps_failures=keeps_failures)
                finally:
                    thread.submit(reader.close)
            finally:
                thread.shutdown(wait=False)

    def _next(self, reader: PartitionReader, topics: Sequence[str], wait: float) -> list[RawRecord]:
        """The records after the group's last commit. Blocks."""
        there: list[Partition] = []
        for topic in topics:
            try:
                there += reader.partitions(topic)
            except Fault as fault:
                if fault.kind is not FaultKind.TOPIC_NOT_FOUND:
                    raise  # a topic without dead letters need not be there
        if not there:
            return []
        committed = reader.committed(there)
        bounds = {one: reader.bounds(one) for one in there}
        places = [
            Position(one, max(committed[one].offset if one in committed else first, first))
            for one, (first, _) in bounds.items()
        ]
        reader.commit(Commit(one.partition, one.offset) for one in places)  # refused now rather than after all is done
        reader.start(places)
        left = {one.partition for one in places}
        until = time.monotonic() + wait
        while left and (seconds := until - time.monotonic()) > 0:
            fetched = reader.read(self._tools.limits.max_batch_records, self._max_bytes, seconds, LINGER_SECONDS)
            if fetched.records:
                return fetched.records
            left -= fetched.ends.keys()
        return []

    async def _give(
        self,
        reader: PartitionReader,
        thread: ThreadPoolExecutor,
        group: str,
        records: list[RawRecord],
        patience: float,
        *,
        keeps_failures: bool,
    ) -> Batch:
        tools, parts = self._tools, by_partition(records)
        last_part = next(part for _, part in parts if records[-1] is part[-1])
        try:
            async with asyncio.timeout(patience):
                settlements = await side_by_side(tools.deliver(part, "", "") for _, part in parts)
        except TimeoutError:
            return Batch(len(records), rolled_back=True, last=_position(last_part[0]))
        verdicts = [verdict for settlement in settlements for verdict in settlement.verdicts]
        dead_letters = DeadLetters(group, tools.extension if keeps_failures else "")
        writes = [write for settlement in settlements for write in dead_letters.records_of(settlement)]
        await write_all(tools.send, writes, refuse_if_final)
        commits = [Commit(partition, part[-1].offset + 1) for partition, part in parts]
        await _run(thread, lambda: reader.commit(commits))
        tools.audit.record(settled(verdicts))
        return Batch(len(records), last=_position(records[-1]))


def _position(record: RawRecord) -> Position:
    return Position(Partition(record.topic, record.partition), record.offset)


async def _run(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
