"""Gives one batch of dead letters to the backend again, at a caller's request.

The group only keeps the committed offsets: nobody joins the group. A record that fails again becomes a dead letter
again, behind the others; on its last retry it is not written again. If the backend does not answer in time, the batch
stays in place.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import structlog

from services.sidecar.auditing.events import settled
from services.sidecar.auditing.trail import AuditTrail
from services.sidecar.consuming.partition_reader import PartitionReader
from services.sidecar.consuming.positions import Position
from services.sidecar.dead_letters.dead_letters import DeadLetters
from services.sidecar.delivering.batch import ReplyRecord, Settlement
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.jobs.side_by_side import side_by_side
from services.sidecar.records import Commit, Partition, RawRecord

Deliver = Callable[[Sequence[RawRecord], str], Coroutine[Any, Any, Settlement]]
Write = Callable[[Sequence[ReplyRecord]], Awaitable[None]]
"""Returns when Kafka has them."""
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

    def __init__(
        self,
        properties: dict[str, Any],
        deliver: Deliver,
        write: Write,
        audit: AuditTrail,
        extension: str,
        *,
        max_records: int,
        max_bytes: int,
    ) -> None:
        self._properties = properties
        self._deliver = deliver
        self._write = write
        self._audit = audit
        self._extension = extension
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._turn = asyncio.Lock()

    async def batch(
        self, group: str, topics: Sequence[str], *, wait: float, patience: float, keeps_failures: bool
    ) -> Batch:
        """Waits `wait` seconds for records, and `patience` for the backend. Fault when Kafka does not take part."""
        async with self._turn:
            thread = ThreadPoolExecutor(1, thread_name_prefix="dead-letters")
            try:
                reader = await _run(thread, lambda: PartitionReader(self._properties, group))
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
            fetched = reader.read(self._max_records, self._max_bytes, seconds, LINGER_SECONDS)
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
        ordered = sorted(records, key=lambda one: (one.topic, one.partition))
        parts = [list(part) for _, part in groupby(ordered, key=lambda one: (one.topic, one.partition))]
        first_of_last = next(
            one for one in records if (one.topic, one.partition) == (records[-1].topic, records[-1].partition)
        )
        try:
            async with asyncio.timeout(patience):
                settlements = await side_by_side(self._deliver(part, "") for part in parts)
        except TimeoutError:
            return Batch(len(records), rolled_back=True, last=_position(first_of_last))
        verdicts = [verdict for settlement in settlements for verdict in settlement.verdicts]
        dead_letters = DeadLetters(group, self._extension if keeps_failures else "")
        await self._write([write for settlement in settlements for write in dead_letters.written_by(settlement)])
        commits = [Commit(Partition(part[-1].topic, part[-1].partition), part[-1].offset + 1) for part in parts]
        await _run(thread, lambda: reader.commit(commits))
        self._audit.record(settled(verdicts))
        return Batch(len(records), last=_position(records[-1]))


def _position(record: RawRecord) -> Position:
    return Position(Partition(record.topic, record.partition), record.offset)


async def _run(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
