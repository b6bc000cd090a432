"""The records of a log up to an offset: how many readers see, and a checksum over all of them in their order."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from aiokafka.record.util import calc_crc32c

from mesh.topic_logs.batches import Batch, ForeignBatchError, batches
from mesh.topic_logs.brokers import CopySetbackError, Fetched
from mesh.topic_logs.course import Gap, steps
from mesh.topic_logs.parts import Source
from mesh.topic_logs.records import contents

FETCH_BYTES: Final = 1 << 20
_CRC: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Equal for logs that readers can't tell apart, transactions that were aborted aside."""

    records: int = 0
    crc: int = 0

    def with_batch(self, batch: Batch, start: int) -> Evidence:
        """The records of a batch, chained to those before. Its records before `start` are deleted, and count not."""
        records, crc = self.records, self.crc
        for number, content in contents(batch, start):
            records += number
            crc = calc_crc32c(_CRC.pack(crc) + content)
        return Evidence(records, crc)


def visible(offset: int, fetched: Fetched) -> bytes | None:
    """The content that readers see at this offset; None if they see nothing."""
    head = next(batches(fetched.records), None)
    if head is None or head.base_offset > offset:
        return None
    step = next(steps(head.base_offset, bytes(head.raw), fetched.aborted, head.next_offset))
    return next((content for _, content in contents(step, offset)), None) if isinstance(step, Batch) else None


async def evidence(brokers: Source, topic: str, partition: int, start: int, end: int) -> Evidence:
    """The records from `start` to before `end`, which has to be behind a batch. Raises CopySetbackError."""
    found, at = Evidence(), start
    while at < end:
        fetched = await brokers.fetch(topic, partition, at, FETCH_BYTES)
        if at == start and (head := next(batches(fetched.records), None)) is not None:
            at = min(at, head.base_offset)
        before = at
        try:
            for step in steps(at, fetched.records, fetched.aborted, end):
                if isinstance(step, Gap):
                    at = step.stop
                else:
                    found, at = found.with_batch(step, start), step.next_offset
        except ForeignBatchError as error:
            raise CopySetbackError(f"{topic}-{partition} on {brokers.name!r}: {error}") from error
        if at <= before:
            raise CopySetbackError(
                f"{topic}-{partition} on {brokers.name!r} shows nothing from offset {at} on, and {end} is wanted"
            )
    return found
