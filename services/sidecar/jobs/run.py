"""Carries out one job: reads its partitions, gives the wanted records to the destination, and commits the progress.

1. A round has the records that all partitions have now, within bounds. The partitions of a round are given side by
   side, each in its order. Their resulting records are written, and their offsets committed, before the next round.
2. A partition ends at the plan's end offset, or at the end of the log; missing offsets are skipped.
3. If Kafka cannot do a step now, the job is tried again from the committed offsets. If a step can never succeed, the
   job ends, and its description has the reason.
4. A job that shall stop finishes its present writes, for a bounded time. The next process does the rest.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import structlog

from mesh.pauses import pause
from services.sidecar.auditing.events import AuditType, settled
from services.sidecar.auditing.trail import OFF, AuditTrail
from services.sidecar.consuming.partition_reader import PartitionReader
from services.sidecar.consuming.positions import Position
from services.sidecar.delivering.writing import Send
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.jobs.destinations import Backend, Deliver, Destination, Taken, Topic
from services.sidecar.jobs.job import Job, PartitionProgress, RefusedError, ToTopic
from services.sidecar.jobs.ledger import Ledger
from services.sidecar.jobs.pace import Pace
from services.sidecar.jobs.planning import plan
from services.sidecar.jobs.side_by_side import by_partition, side_by_side
from services.sidecar.records import Partition, RawRecord
from services.sidecar.telemetry import metrics

READ_SECONDS = 0.5
"""The wait of one read, and so the longest time until the run notices that the job shall stop."""
SETTLE_SECONDS = 5.0
"""The time that a job which shall stop has for its present writes."""
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
_FINAL = frozenset({FaultKind.TOPIC_NOT_FOUND, FaultKind.ILLEGAL_CONSUMER_STATE, FaultKind.CONSUMER_CONFIG_EXCEPTION})
T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JobLimits:
    """Bounds, in the unit that each name ends in."""

    max_batch_records: int = 100
    max_batch_bytes: int = 102_400
    """The size of a round for the backend."""
    max_round_records: int = 1_000
    max_round_bytes: int = 1_048_576
    """The size of a round for topics."""
    linger_seconds: float = 0.01
    transaction_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class JobTools:
    """The clients, functions and bounds that jobs use."""

    consumer: dict[str, Any]
    """Properties of consumers."""
    transactional: Callable[[str], dict[str, Any]]
    """Properties of a producer with a transactional id."""
    send: Send
    deliver: Deliver
    extension: str
    dead_letters: bool
    """Whether a record that fails becomes a dead letter."""
    audit: AuditTrail = OFF
    limits: JobLimits = JobLimits()


class JobRun:
    """One job, as long as this process carries it out. `changed` is called at each progress of the job."""

    def __init__(self, job: Job, tools: JobTools, changed: Callable[[], None]) -> None:
        self._job = job
        self._tools = tools
        self._changed = changed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"job-{job.id}")
        self._pace = Pace(job.spec.rate, time.monotonic())

    async def carry_out(self) -> str:
        """Returns a sentence when the job is done. RefusedError when the job can never be done."""
        failures = 0
        while True:
            try:
                await self._attempt()
                return self._sentence()
            except Fault as fault:
                if fault.kind in _FINAL:
                    raise RefusedError(fault.description) from None
                log.info("a job waits", job=self._job.id, reason=fault.description)
                self._job.description = f"waits: {fault.description}"
                self._changed()
            failures += 1
            await asyncio.sleep(pause(failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    async def _attempt(self) -> None:
        job, tools = self._job, self._tools
        async with self._reader() as reader:
            if not job.partitions:
                found = await self._on_thread(partial(plan, job.spec, tools.extension, reader))
                self._reached(found)
            if job.spec.dry_run:
                await self._count(reader)
                return
            destination = self._destination()
            transactional = tools.transactional(f"kafka-mesh-{job.group}")
            ledger = Ledger(
                job.id,
                reader,
                transactional,
                tools.send,
                self._on_thread,
                tools.audit,
                seconds=tools.limits.transaction_seconds,
            )
            try:
                self._reached(await ledger.open(job.partitions.values()))
                await self._read(reader, partial(self._give, destination, ledger))
            finally:
                await ledger.close()

    async def _count(self, reader: PartitionReader) -> None:
        """Counts the records. Only a job with a filter has to read them for that."""
        if not self._job.spec.filter:
            return
        self._reached([replace(one, position=one.start, planned=0) for one in self._job.partitions.values()])

        async def count(records: Sequence[RawRecord], ended: Iterable[Partition]) -> None:
            for partition, some in by_partition(records):
                place = self._job.partitions[partition]
                self._reached(
                    [replace(place, position=some[-1].offset + 1, planned=(place.planned or 0) + self._matching(some))]
                )
            self._reached([self._ended(partition) for partition in ended])

        await self._read(reader, count)

    async def _read(
        self, reader: PartitionReader, use: Callable[[Sequence[RawRecord], Sequence[Partition]], Awaitable[None]]
    ) -> None:
        """Reads the rest of all partitions, round by round: the records, and the partitions that end with them."""
        limits = self._tools.limits
        left = {one.partition: one for one in self._job.partitions.values() if not one.is_done}
        await self._on_thread(lambda: reader.start(Position(one.partition, one.position) for one in left.values()))
        if isinstance(self._job.spec.destination, ToTopic) or self._job.spec.dry_run:
            room = limits.max_round_records, limits.max_round_bytes
        else:
            room = limits.max_batch_records, limits.max_batch_bytes
        read = partial(reader.read, *room, READ_SECONDS, limits.linger_seconds)
        while left:
            fetched = await self._on_thread(read)
            ended = {one for one, at in fetched.ends.items() if one in left and at >= left[one].end}
            records = []
            for record in fetched.records:
                partition = Partition(record.topic, record.partition)
                if partition not in left:
                    continue
                if record.offset < left[partition].end:
                    records.append(record)
                if record.offset + 1 >= left[partition].end:
                    ended.add(partition)
            if records or ended:
                await use(records, sorted(ended))
            for partition in ended:
                del left[partition]
                await self._on_thread(partial(reader.stop, partition))

    async def _give(
        self, destination: Destination, ledger: Ledger, records: Sequence[RawRecord], ended: Sequence[Partition]
    ) -> None:
        while records:
            some = await self._allowed(records)
            records = records[len(some) :]
            groups = by_partition(some)
            taken = await side_by_side(
                [
                    self._take(destination, [one for one in group if self._job.spec.filter.takes(one)])
                    for _, group in groups
                ]
            )
            places = [
                self._further(partition, group, one.failed)
                for (partition, group), one in zip(groups, taken, strict=True)
            ]
            await self._settle(ledger, [write for one in taken for write in one.writes], places)
            verdicts = [verdict for one in taken for verdict in one.verdicts]
            self._tools.audit.record(settled(verdicts, AuditType.STREAMING_CONSUMER))
        if ends := [self._ended(partition) for partition in ended if not self._job.partitions[partition].is_done]:
            await self._settle(ledger, [], ends)

    async def _take(self, destination: Destination, records: Sequence[RawRecord]) -> Taken:
        return await destination.take(records) if records else Taken()

    async def _allowed(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        """The records that may go now, with those that the filter leaves out; waits until one record may go."""
        wanted = self._matching(records)
        if not wanted:
            return records
        while not (allowed := self._pace.take(wanted, time.monotonic())):
            await asyncio.sleep(self._pace.pause(time.monotonic()))
        if allowed == wanted:
            return records
        for index, record in enumerate(records):
            if self._job.spec.filter.takes(record):
                if not allowed:
                    return records[:index]
                allowed -= 1
        return records

    async def _settle(self, ledger: Ledger, writes: Sequence[Any], places: Sequence[PartitionProgress]) -> None:
        """Settles to the end, even if the job shall stop meanwhile: the counts must match the commits."""
        settling = asyncio.create_task(ledger.settle(writes, places), name=f"settle job {self._job.id}")
        try:
            await asyncio.shield(settling)
        except asyncio.CancelledError:
            await asyncio.wait([settling], timeout=SETTLE_SECONDS)
            if settling.done() and not settling.cancelled() and settling.exception() is None:
                self._reached(places)
            settling.cancel()
            raise
        self._count_settled(len(writes), places)
        self._reached(places)

    def _count_settled(self, written: int, places: Iterable[PartitionProgress]) -> None:
        metrics.job_records.labels("written").inc(written)
        for place in places:
            was = self._job.partitions[place.partition]
            metrics.job_records.labels("acknowledged").inc(place.records - was.records)
            metrics.job_records.labels("failed").inc(place.failed - was.failed)

    def _further(self, partition: Partition, records: Sequence[RawRecord], failed: int) -> PartitionProgress:
        was = self._job.partitions[partition]
        return replace(
            was,
            position=records[-1].offset + 1,
            records=was.records + self._matching(records),
            failed=was.failed + failed,
        )

    def _ended(self, partition: Partition) -> PartitionProgress:
        was = self._job.partitions[partition]
        return replace(was, position=was.end)

    def _reached(self, places: Iterable[PartitionProgress]) -> None:
        self._job.partitions.update((one.partition, one) for one in places)
        self._job.description = ""
        self._changed()

    def _matching(self, records: Iterable[RawRecord]) -> int:
        return sum(map(self._job.spec.filter.takes, records))

    def _destination(self) -> Destination:
        to, tools = self._job.spec.destination, self._tools
        if isinstance(to, ToTopic):
            return Topic(to.topic, tools.extension)
        keeps = tools.dead_letters and not to.last_retry
        occasion = f"replay-{self._job.id}"
        return Backend(tools.deliver, to.path, occasion, self._job.group, tools.extension, keeps_failures=keeps)

    def _sentence(self) -> str:
        job = self._job
        if job.spec.dry_run:
            planned = [one.planned for one in job.partitions.values() if one.planned is not None]
            offsets = sum(one.end - one.start for one in job.partitions.values())
            return f"{sum(planned)} records are chosen" if planned else f"{offsets} offsets, each a record or a gap"
        failed = f", {job.failed} of them failed" if job.failed else ""
        return f"{job.records} records{failed}"

    @contextlib.asynccontextmanager
    async def _reader(self) -> AsyncIterator[PartitionReader]:
        reader = await self._on_thread(lambda: PartitionReader(self._tools.consumer, self._job.group))
        try:
            yield reader
        finally:
            self._thread.submit(reader.close)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        """Runs work on the job's thread: the clients block, and each client belongs to one thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """The thread ends after its present work."""
        self._thread.shutdown(wait=False)
