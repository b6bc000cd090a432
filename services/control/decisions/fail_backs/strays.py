"""Strays of one topic: records that only the cluster has that came back. They are found, and written to their place.

Theory of operation
1. Both logs are read from the end of the copy on. A record is a stray if the log of the clients has no such record at
   its offset: another time, key, value or header, or none.
2. An idempotent producer whose batch had no answer when the cluster died has sent the batch again. It has the same
   sequence, times and bytes in the log of the clients, so its records are no strays.
3. One producer writes all strays of a topic; its id follows from the fail-over. A marker of its next epoch comes first:
   the brokers refuse whatever an earlier control still sends. Then control counts the records that this producer has
   written since the comparison began, and passes over as many strays: the same part of a log has the same strays each
   time.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from mesh.rpc import fail_backs
from mesh.topic_logs.batches import UNKNOWN, Batch, Writer, batches, producer_of, written_by
from mesh.topic_logs.brokers import READ_UNCOMMITTED, Brokers, CopySetbackError
from mesh.topic_logs.course import Gap, steps
from mesh.topic_logs.pace import Pace
from mesh.topic_logs.records import closed, opened, with_headers

FETCH_BYTES: Final = 1 << 20
OPENED_BYTES: Final = 64 << 20
"""Bytes that come out of one compressed batch at most."""
BATCH_BYTES: Final = 256 << 10
RESENT_BYTES: Final = 64 << 20
"""Bytes of the log of the clients in which control looks for batches that were sent again."""
RESENT_MS: Final = 900_000
"""Milliseconds after the fail-over in which producers send batches again: by default they try for two minutes."""
PARTITION, OFFSET, CLUSTER = "mesh.stray.partition", "mesh.stray.offset", "mesh.stray.cluster"
"""The headers of a stray in a topic of its own."""
_SEQUENCE: Final = struct.Struct(">i")
_SEQUENCE_AT: Final = 53
"""The place of a batch's first sequence."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record that readers see."""

    offset: int
    time: int
    body: bytes
    """Key, value and headers."""
    batch: bytes
    """The key of its batch, if an idempotent producer may send the batch again."""


@dataclass(slots=True)
class Found:
    """The strays of a partition, and what else a comparison has found."""

    strays: int = 0
    resent: int = 0
    is_prefix: bool = True
    """Whether the log of the clients begins with the log of the cluster that came back."""


@dataclass(slots=True)
class Comparison:
    """The comparison of one topic. `here`: the cluster that came back; `there`: the cluster of the clients."""

    here: Brokers
    there: Brokers
    topic: fail_backs.FailBackTopic
    producer: str
    """Names the producer of the strays: the same for one fail-over."""
    failed_over_ms: int
    with_headers: bool
    pace: Pace
    check: Callable[[], None]
    """Raises a refusal when the comparison is to end."""
    found: dict[int, Found] = field(default_factory=dict)

    async def run(self) -> None:
        """Writes the strays of all partitions. Raises CopySetbackError, or ForeignBatchError for good."""
        for partition in self.topic.partitions:
            self.check()
            self.found[partition.partition] = await self._partition(partition)

    async def _partition(self, of: fail_backs.FailBackPartition) -> Found:
        start, _ = await self.there.range(self.topic.clients_topic, of.partition)
        found = Found(is_prefix=(not of.end or of.end >= start) and (of.end <= of.start or of.end <= of.clients_end))
        if of.end <= of.start:
            return found
        resent = await self._resent(of, start)
        place = _Place(self, of)
        async for each in self._differing(of, start, found):
            if each.batch and each.batch in resent:
                found.resent += 1
                continue
            found.strays += 1
            await place.add(each)
        await place.close()
        return found

    async def _differing(self, of: fail_backs.FailBackPartition, start: int, found: Found) -> AsyncIterator[Record]:
        stop = min(of.end, of.clients_end)
        theirs = records(self.there, self.topic.clients_topic, of.partition, max(start, of.start), stop)
        other = await anext(theirs, None)
        async for mine in records(self.here, self.topic.cluster_topic, of.partition, of.start, of.end):
            while other is not None and other.offset < mine.offset:
                found.is_prefix, other = False, await anext(theirs, None)
            if other is not None and (other.offset, other.time, other.body) == (mine.offset, mine.time, mine.body):
                other = await anext(theirs, None)
                continue
            found.is_prefix = False
            yield mine
        if other is not None:
            found.is_prefix = False

    async def _resent(self, of: fail_backs.FailBackPartition, start: int) -> set[bytes]:
        """The batches that idempotent producers have written where the clients are, soon after the fail-over."""
        found: set[bytes] = set()
        at, size = max(start, of.copied_end), 0
        while at < of.clients_end and size < RESENT_BYTES:
            fetched = await self.there.fetch(self.topic.clients_topic, of.partition, at, FETCH_BYTES, 0)
            before = at
            for batch in batches(fetched.records):
                if batch.max_timestamp > self.failed_over_ms + RESENT_MS:
                    return found
                at = batch.next_offset
                found.add(_key(batch))
            size += len(fetched.records)
            if at <= before:
                break
        return found - {b""}


async def records(brokers: Brokers, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Record]:
    """The records that readers see from `start` to before `stop`."""
    at = start
    while at < stop:
        fetched = await brokers.fetch(topic, partition, at, FETCH_BYTES)
        if (head := next(batches(fetched.records), None)) is not None and head.base_offset < at:
            at = head.base_offset  # inside a batch
        before = at
        for step in steps(at, fetched.records, fetched.aborted, stop):
            if isinstance(step, Gap):
                at = step.stop
                continue
            step.check()
            key = _key(step)
            for offset, time, body in opened(step, OPENED_BYTES):
                if start <= offset < stop:
                    yield Record(offset, time, body, key)
            at = step.next_offset
        if at <= before:
            raise CopySetbackError(
                f"{topic}-{partition} on {brokers.name!r} shows nothing from offset {at} on, and {stop} is wanted"
            )


@dataclass(slots=True)
class _Place:
    """The place for the strays of one partition."""

    comparison: Comparison
    of: fail_backs.FailBackPartition
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0
    known: int = -1
    """Strays that are there already; -1 before the first one is to be written."""
    writer: Writer = field(default_factory=lambda: Writer(UNKNOWN, UNKNOWN, 0))

    async def add(self, record: Record) -> None:
        if self.known < 0:
            await self._open()
        if self.known:
            self.known -= 1
            return
        body = record.body
        if self.comparison.with_headers:
            place = {PARTITION: str(self.of.partition), OFFSET: str(record.offset), CLUSTER: self.comparison.here.name}
            body = with_headers(body, {name: value.encode() for name, value in place.items()})
        if self.size + len(body) > min(BATCH_BYTES, self.comparison.pace.at_once):
            await self.close()
        self.waiting.append((record.time, body))
        self.size += len(body)

    async def close(self) -> None:
        """Writes those that wait."""
        if not self.waiting:
            return
        self.comparison.check()
        await self.comparison.pace.take(self.size)
        batch = closed(self.waiting)
        await self.comparison.there.produce(self._topic, self.of.partition, written_by(self.writer, batch))
        self.writer = self.writer.after(batch.records)
        self.waiting, self.size = [], 0

    async def _open(self) -> None:
        there, number = self.comparison.there, self.of.partition
        await there.partitions(self._topic)
        producer_id = producer_of(self.comparison.producer)
        self.writer = (await there.writer(self._topic, number, producer_id)).anew()
        await there.mark(self._topic, number, self.writer, 1)
        _, end = await there.range(self._topic, number)
        at, self.known = self.of.strays_start, 0
        while at < end:
            before = at
            fetched = await there.fetch(self._topic, number, at, FETCH_BYTES, 0, READ_UNCOMMITTED)
            for batch in batches(fetched.records):
                at = batch.next_offset
                if batch.producer_id == producer_id and not batch.is_control:
                    self.known += batch.records
            if at <= before:
                raise CopySetbackError(f"{self._topic}-{number} on {there.name!r} shows nothing from offset {at} on")

    @property
    def _topic(self) -> str:
        return self.comparison.topic.strays_topic


def _key(batch: Batch) -> bytes:
    """The same for a batch that its idempotent producer sends again; empty for all others."""
    if batch.producer_id < 0 or batch.is_transactional or batch.is_control:
        return b""
    (sequence,) = _SEQUENCE.unpack_from(batch.raw, _SEQUENCE_AT)
    head = struct.pack(">iiqq", sequence, batch.records, batch.base_timestamp, batch.max_timestamp)
    return hashlib.sha256(head + batch.records_bytes).digest()[:16]
