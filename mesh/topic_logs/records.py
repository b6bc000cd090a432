"""The records inside plain batches: what readers see of them, and small batches joined to larger ones. No I/O.

A source whose producers do not linger has a batch for each record, and a broker takes one batch of a partition at a
time. So a copy joins small batches that follow one another: one write instead of hundreds. A record keeps its offset,
time, key, value and headers; only its distance from the head of the batch is written anew. A compressed batch stays as
it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from mesh.topic_logs.batches import PLAIN, Attribute, Batch, ForeignBatchError, plain_batch
from mesh.topic_logs.course import Step

SMALL: Final = 16 << 10
"""Bytes of a batch that is joined at most. A larger one costs more to rewrite than a write of its own."""
JOINED: Final = 256 << 10
"""Bytes of joined batches, a quarter of what brokers take by default."""
_PLACE: Final = struct.Struct(">qq")
"""Offset and time."""


def contents(batch: Batch, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """All that readers see from offset `start` on, the same however the batches of a log are joined.

    Each comes with its number of records: 1, or those of a compressed batch, which counts as a whole.
    """
    if batch.codec:
        yield batch.next_offset - max(batch.base_offset, start), batch.content
        return
    for delta, later, body in _records(batch):
        if (offset := batch.base_offset + delta) >= start:
            yield 1, _PLACE.pack(offset, batch.base_timestamp + later) + body


def joined(steps: Iterable[Step], most: float = JOINED) -> Iterator[Step]:
    """The steps, with small batches joined to batches of `most` bytes. ForeignBatchError: a batch is damaged."""
    waiting: list[Batch] = []
    size = 0
    for step in steps:
        if isinstance(step, Batch):
            step.check()
            if _is_small(step):
                if waiting and size + len(step.raw) > most:
                    yield _one(waiting)
                    waiting, size = [], 0
                waiting.append(step)
                size += len(step.raw)
                continue
        if waiting:
            yield _one(waiting)
            waiting, size = [], 0
        yield step
    if waiting:
        yield _one(waiting)


def _is_small(batch: Batch) -> bool:
    return len(batch.raw) <= SMALL and batch.attributes in (PLAIN, Attribute.TRANSACTIONAL)


def _one(waiting: list[Batch]) -> Batch:
    head = waiting[0]
    if len(waiting) == 1:
        return head
    made = bytearray()
    for batch in waiting:
        further, later = batch.base_offset - head.base_offset, batch.base_timestamp - head.base_timestamp
        for delta, time, body in _records(batch):
            rest = b"\0" + _varint(time + later) + _varint(delta + further) + body
            made += _varint(len(rest))
            made += rest
    latest = max(batch.max_timestamp for batch in waiting)
    return plain_batch(head.base_offset, waiting[-1].next_offset, head.base_timestamp, latest, bytes(made))


def _records(batch: Batch) -> Iterator[tuple[int, int, bytes]]:
    """For each record the distance of its offset and of its time from the head, and the rest: key, value, headers."""
    payload = bytes(batch.records_bytes)
    at = 0
    try:
        for number in range(batch.records):
            length, at = _read(payload, at)
            end = at + length
            later, at = _read(payload, at + 1)
            delta, at = _read(payload, at)
            if delta != number or not at <= end <= len(payload):
                raise IndexError
            yield delta, later, payload[at:end]
            at = end
    except IndexError:
        raise ForeignBatchError(
            f"a record of the batch at offset {batch.base_offset} is not of Kafka's format"
        ) from None


def _read(payload: bytes, at: int) -> tuple[int, int]:
    """A signed varint, and the place behind it."""
    byte = payload[at]
    at += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1), at


def _varint(value: int) -> bytes:
    left = value << 1 if value >= 0 else (-value << 1) - 1
    if left < 0x80:
        return bytes((left,))
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
