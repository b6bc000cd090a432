"""Record batches as they lie in requests and answers: their heads, and the producer that a head names."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

HEAD = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last delta, two times, producer, epoch, sequence,
count."""
PRODUCER_AT, CHECKED_FROM, CHECKSUM_AT, MAGIC_AT, SIZE_AT = 43, 21, 17, 16, 8
OFFSET_AND_SIZE = 12
LOG_APPEND_TIME, CONTROL = 0x08, 0x20


@dataclass(frozen=True, slots=True)
class Stored:
    """One batch of a log, without what brokers are free to choose."""

    offset: int
    last_offset: int
    attributes: int
    times: tuple[int, int] | None
    """None: the broker's own clock."""
    producer_id: int
    epoch: int
    sequence: int
    count: int
    is_sound: bool
    """Its checksum is right."""
    payload: bytes


def split(records: bytes) -> Iterator[bytes]:
    """Whole batches, or the messages of message sets; a cut batch at the end is left out."""
    at = 0
    while at + OFFSET_AND_SIZE <= len(records):
        [size] = struct.unpack_from(">i", records, at + SIZE_AT)
        end = at + OFFSET_AND_SIZE + size
        if size <= 0 or end > len(records):
            return
        yield records[at:end]
        at = end


def has_head(batch: bytes) -> bool:
    return len(batch) >= HEAD.size and batch[MAGIC_AT] == 2


def with_producers(records: bytes, bound: Callable[[int, int], tuple[int, int]]) -> bytes:
    """The same batches, each by the producer and epoch that `bound` names for its own."""
    written = []
    for batch in split(records):
        if has_head(batch):
            producer = struct.unpack_from(">qh", batch, PRODUCER_AT)
            other = bound(*producer)
            if other != producer:
                changed = bytearray(batch)
                struct.pack_into(">qh", changed, PRODUCER_AT, *other)
                struct.pack_into(">I", changed, CHECKSUM_AT, crc32c(bytes(changed[CHECKED_FROM:])))
                written.append(bytes(changed))
                continue
        written.append(batch)
    kept = sum(map(len, written))
    return b"".join(written) + records[kept:]


def stored(batch: bytes, producer: Callable[[int], int]) -> Stored | None:
    """None: a message of an older format. `producer` gives the recording's own name for a producer id."""
    if not has_head(batch):
        return None
    head = HEAD.unpack_from(batch)
    offset, _, _, _, checksum, attributes, delta, first, last, producer_id, epoch, sequence, count = head
    by_broker = attributes & (CONTROL | LOG_APPEND_TIME)
    return Stored(
        offset,
        offset + delta,
        attributes,
        None if by_broker else (first, last),
        producer(producer_id),
        epoch,
        sequence,
        count,
        crc32c(batch[CHECKED_FROM:]) == checksum,
        batch[HEAD.size :],
    )
