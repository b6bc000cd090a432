"""The records inside batches: what readers see of them, and small batches joined to larger ones. No I/O.

A source whose producers do not linger has a batch for each record, and a broker takes one batch of a partition at a
time. So a copy joins small batches that follow one another: one write instead of hundreds. A record keeps its offset,
time, key, value and headers; only its distance from the head of the batch is written anew. Compressed batches become
one of the same codec. A batch stays as it is if too much comes out of it, or if it can't be decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from mesh.compression import Allowance, Codec, compress, decompress
from mesh.topic_logs.batches import CODEC, HEAD_BYTES, PLAIN, Attribute, Batch, ForeignBatchError, new_batch
from mesh.topic_logs.course import Step

SMALL: Final = 16 << 10
"""Bytes of a batch that is joined at most, decompressed too. A larger one costs more to rewrite than its own write."""
JOINED: Final = 256 << 10
"""Bytes of joined batches, a quarter of what brokers take by default."""
OPENED: Final = 1 << 20
"""Bytes that come out of a compressed batch at most that is read record by record. A joined batch has less."""
_PLACE: Final = struct.Struct(">qq")
"""Offset and time."""


def contents(batch: Batch, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """All that readers see from offset `start` on, the same however the batches of a log are joined.

    Each comes with its number of records: 1, or those of a batch that can't be opened, which counts as a whole.
    """
    payload = _decompressed(batch, OPENED)
    if payload is None:
        yield batch.next_offset - max(batch.base_offset, start), batch.content
        return
    for delta, later, body in _records(batch, payload):
        if (offset := batch.base_offset + delta) >= start:
            yield 1, _PLACE.pack(offset, batch.base_timestamp + later) + body


def opened(batch: Batch, most: int) -> list[tuple[int, int, bytes]]:
    """Offset, time, and the rest (key, value, headers) of each record. ForeignBatchError: it can't be opened."""
    payload = _decompressed(batch, most)
    if payload is None:
        text = f"the batch at offset {batch.base_offset} can't be decompressed to {most:,} bytes at most"
        raise ForeignBatchError(text)
    return [
        (batch.base_offset + delta, batch.base_timestamp + later, body)
        for delta, later, body in _records(batch, payload)
    ]


def closed(records: Sequence[tuple[int, bytes]]) -> Batch:
    """A batch without a codec, of the times and the rests of records."""
    first = records[0][0]
    made = bytearray()
    for delta, (time, body) in enumerate(records):
        made += _record(time - first, delta, body)
    return new_batch(0, len(records), first, max(time for time, _ in records), bytes(made), 0)


def with_headers(body: bytes, headers: Mapping[str, bytes]) -> bytes:
    """The rest of a record with further headers, behind those that it has. `body`: key, value, headers."""
    at = 0
    for _ in ("key", "value"):
        length, at = _read(body, at)
        at += max(0, length)
    number, after = _read(body, at)
    made = bytearray(body[:at]) + _varint(number + len(headers)) + body[after:]
    for name, value in headers.items():
        made += _varint(len(name.encode())) + name.encode() + _varint(len(value)) + value
    return bytes(made)


def joined(steps: Iterable[Step], most: float = JOINED) -> Iterator[Step]:
    """The steps, with small batches joined to batches of `most` bytes. ForeignBatchError: a batch is damaged.

    The bytes of a compressed batch are those that come out of it.
    """
    waiting: list[tuple[Batch, bytes]] = []
    size = 0
    for step in steps:
        payload = None
        if isinstance(step, Batch):
            step.check()
            payload = _decompressed(step, SMALL) if _is_small(step) else None
            if payload is not None:
                if waiting and (size + len(payload) + HEAD_BYTES > most or step.codec != waiting[0][0].codec):
                    yield _one(waiting)
                    waiting, size = [], 0
                waiting.append((step, payload))
                size += len(payload) + HEAD_BYTES
                continue
        if waiting:
            yield _one(waiting)
            waiting, size = [], 0
        yield step
    if waiting:
        yield _one(waiting)


def _is_small(batch: Batch) -> bool:
    return len(batch.raw) <= SMALL and batch.attributes & ~CODEC in (PLAIN, Attribute.TRANSACTIONAL)


def _decompressed(batch: Batch, most: int) -> bytes | None:
    """The records as they are without a codec; None if they can't be had, or have more than `most` bytes then."""
    if not batch.codec:
        return bytes(batch.records_bytes)
    try:
        return decompress(Codec(batch.codec), batch.records_bytes, Allowance(most))
    except ValueError:  # no codec of Kafka's, or a WireError: damaged, or too much
        return None


def _one(waiting: list[tuple[Batch, bytes]]) -> Batch:
    head = waiting[0][0]
    if len(waiting) == 1:
        return head
    made = bytearray()
    for batch, payload in waiting:
        further, later = batch.base_offset - head.base_offset, batch.base_timestamp - head.base_timestamp
        for delta, time, body in _records(batch, payload):
            made += _record(time + later, delta + further, body)
    latest = max(batch.max_timestamp for batch, _ in waiting)
    records = compress(Codec(head.codec), made)
    stop = waiting[-1][0].next_offset
    return new_batch(head.base_offset, stop, head.base_timestamp, latest, records, head.codec)


def _records(batch: Batch, payload: bytes) -> Iterator[tuple[int, int, bytes]]:
    """For each record the distance of its offset and of its time from the head, and the rest: key, value, headers."""
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


def _record(later: int, delta: int, body: bytes) -> bytes:
    rest = b"\0" + _varint(later) + _varint(delta) + body
    return _varint(len(rest)) + rest


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
