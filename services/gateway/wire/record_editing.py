"""Writes a batch (magic 2) again with other values and headers in its records; all else stays what it was.

Keys, times, offsets, the number and the order of the records, and the header of the batch are the same bytes, but for
its length and its CRC. The body is compressed again by the codec of the batch.
"""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct as Packing
from typing import NamedTuple

from crc32c import crc32c

from mesh.compression import codec_of, compress
from services.gateway.wire.batches import CRC_AT, CRC_FROM, HEADER_BYTES, BatchHeader
from services.gateway.wire.legacy.record_batches import write_varint
from services.gateway.wire.primitives import INT16, INT32, UINT32, Buffer, WireError, read_varlong
from services.gateway.wire.record_bodies import read_bytes

_LENGTH_AT = 8
_LENGTH_FROM = 12
_ATTRIBUTES_AT = 21
_NUMBERS = Packing(">hi")
"""Attributes, and the last offset delta."""
_PRODUCER_AT = 43
_PRODUCER = Packing(">qhii")
"""Producer id, epoch and sequence; the number of records."""

Headers = Sequence[tuple[bytes, bytes | None]]


class Part(NamedTuple):
    """One record, and the places of what can be edited."""

    start: int
    time: int
    """In ms after the batch's first time."""
    value_at: int
    """The length of the value stands there."""
    end: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


Edit = Callable[[Part], tuple[bytes | None, Headers] | None]
"""The new value and headers; None: the batch is not needed."""


def parts(body: bytes, count: int) -> Iterator[Part]:
    """The records of a body. `WireError` where they end before the last one, or bytes follow it."""
    at, end = 0, len(body)
    for _ in range(count):
        length, start = read_varlong(body, at, end, "record.length")
        stop = start + length
        if length < 1 or stop > end:
            raise WireError("record.length", at, f"{length}, {end - start} bytes left")
        time, at = read_varlong(body, start + 1, stop, "record.timestamp")
        _, at = read_varlong(body, at, stop, "record.offset")
        key, value_at = read_bytes(body, at, stop, "record.key")
        value, at = read_bytes(body, value_at, stop, "record.value")
        headers, at = _headers(body, at, stop)
        if at != stop:
            raise WireError("record.length", start, f"{stop - at} bytes follow the headers")
        yield Part(start, time, value_at, stop, key, value, headers)
    if at != end:
        raise WireError("batch.records", at, f"{end - at} bytes follow the last record")


def edited(buffer: Buffer, header: BatchHeader, body: bytes, edit: Edit) -> bytes | None:
    """The batch, whose records went through `edit` one by one, all of them. What `edit` raises goes on to the caller.

    None if one of them is None.
    """
    out = bytearray()
    is_needed = True
    for part in parts(body, header.record_count):
        new = edit(part)
        is_needed &= new is not None
        if new is None or not is_needed:
            continue
        start, value_at = part.start, part.value_at
        tail = _tail(*new)
        out += write_varint(value_at - start + len(tail))
        out += memoryview(body)[start:value_at]
        out += tail
    if not is_needed:
        return None
    return _with_body(bytearray(memoryview(buffer)[header.start : header.start + HEADER_BYTES]), out)


def chosen(buffer: Buffer, header: BatchHeader, records: Sequence[tuple[Part, Headers]]) -> bytes:
    """A batch of these records of the batch with other headers, of a producer that does not number its batches."""
    out = bytearray()
    for index, (part, headers) in enumerate(records):
        head = b"\0" + write_varint(part.time) + write_varint(index)
        head += write_varint(-1) if part.key is None else write_varint(len(part.key)) + part.key
        tail = _tail(part.value, headers)
        out += write_varint(len(head) + len(tail)) + head + tail
    batch = bytearray(memoryview(buffer)[header.start : header.start + HEADER_BYTES])
    _NUMBERS.pack_into(batch, _ATTRIBUTES_AT, header.compression, len(records) - 1)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, -1, -1, -1, len(records))
    return _with_body(batch, out)


def _tail(value: bytes | None, headers: Headers) -> bytearray:
    """A record from its value on."""
    tail = bytearray()
    if value is None:
        tail += write_varint(-1)
    else:
        tail += write_varint(len(value))
        tail += value
    tail += write_varint(len(headers))
    for name, content in headers:
        tail += write_varint(len(name)) + name
        tail += write_varint(-1) if content is None else write_varint(len(content)) + content
    return tail


def _with_body(batch: bytearray, body: bytearray) -> bytes:
    """The batch with this header: its length and its CRC become right."""
    (attributes,) = INT16.unpack_from(batch, _ATTRIBUTES_AT)
    batch += compress(codec_of(attributes), body)
    INT32.pack_into(batch, _LENGTH_AT, len(batch) - _LENGTH_FROM)
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def _headers(body: bytes, at: int, stop: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    count, at = read_varlong(body, at, stop, "record.headers")
    if not 0 <= count <= stop - at:
        raise WireError("record.headers", at, f"{count} headers, {stop - at} bytes left")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = read_bytes(body, at, stop, "record.header")
        value, at = read_bytes(body, at, stop, "record.header")
        headers.append((name or b"", value))
    return headers, at
