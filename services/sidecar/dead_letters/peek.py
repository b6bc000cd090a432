"""Reads dead letters and changes nothing: no group, no commit."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.consuming.partition_reader import PartitionReader
from services.sidecar.consuming.positions import Position
from services.sidecar.dead_letters.record import Origin
from services.sidecar.delivering.batch import Deliverable
from services.sidecar.delivering.record_shower import RecordShower
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.records import RawRecord, Verdict

MAX_PEEKS = 2
"""At a time; each is a client of its own, and a thread."""
READ_SECONDS = 5.0
"""How long Kafka may be silent."""
LINGER_SECONDS = 0.01
MAX_BYTES = 1024 * 1024
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PeekedRecord:
    """A dead letter, with the origin in its headers."""

    record: RawRecord
    origin: Origin
    shown: Deliverable | None
    """The record in the formats of the reactive consumer.

    None if it does not fit them, or if a schema is not available now.
    """


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The first and the next offset of one partition of dead letters."""

    partition: int
    first: int
    next: int


class Peek:
    """The reader of dead letters of one sidecar."""

    def __init__(self, properties: Mapping[str, Any], shower: Callable[[str], RecordShower]) -> None:
        """`shower` shows dead letters of a topic."""
        self._properties = properties
        self._shower = shower
        self._readers = asyncio.Semaphore(MAX_PEEKS)

    async def counts(self, is_wanted: Callable[[str], bool]) -> dict[str, list[PartitionCount]]:
        """The counts of each wanted topic that exists. Fault if Kafka does not answer."""

        def count(reader: PartitionReader) -> dict[str, list[PartitionCount]]:
            there = reader.topics()
            return {
                topic: [PartitionCount(one.partition, *reader.bounds(one)) for one in there[topic]]
                for topic in sorted(there)
                if is_wanted(topic)
            }

        return await self._with_reader(count)

    async def records(
        self, topic: str, partition: int | None, offset: int | None, max_records: int
    ) -> list[PeekedRecord]:
        """From an offset on, or from the first there is. Fault when there is no such topic or partition."""

        def read(reader: PartitionReader) -> list[RawRecord]:
            there = reader.partitions(topic)
            wanted = [one for one in there if partition in (None, one.partition)]
            if not wanted:
                raise Fault(
                    FaultKind.TOPIC_NOT_FOUND, f"There is no partition {topic}-{partition} (the topic has {len(there)})"
                )
            starts = []
            for one in wanted:
                first, end = reader.bounds(one)
                start = max(first, offset or 0)
                if start < end:  # behind the end Kafka would have it begin at the first
                    starts.append(Position(one, start))
            return _read(reader, starts, max_records)

        records = await self._with_reader(read)
        try:
            shown = await self._shower(topic).shown_aside(records)
        except RegistryUnavailableError:
            return [PeekedRecord(record, Origin.of(record.headers), None) for record in records]
        return [
            PeekedRecord(record, Origin.of(record.headers), None if isinstance(one, Verdict) else one)
            for record, one in zip(records, shown, strict=True)
        ]

    async def _with_reader(self, work: Callable[[PartitionReader], T]) -> T:
        def done() -> T:
            reader = PartitionReader(self._properties)
            try:
                return work(reader)
            finally:
                reader.close()

        async with self._readers:
            return await asyncio.to_thread(done)


def _read(reader: PartitionReader, starts: list[Position], max_records: int) -> list[RawRecord]:
    """Up to so many, within a bound of bytes, or up to the end of all partitions."""
    found: list[RawRecord] = []
    left = {one.partition for one in starts}
    room = MAX_BYTES
    if left:
        reader.start(starts)
    while left and room > 0 and len(found) < max_records:
        fetched = reader.read(max_records - len(found), room, READ_SECONDS, LINGER_SECONDS)
        if not fetched.records and not fetched.ends:
            break
        found += fetched.records
        room -= sum(one.size for one in fetched.records)
        left -= fetched.ends.keys()
    return sorted(found, key=lambda one: (one.partition, one.offset))
