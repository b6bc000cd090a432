"""The fields that identify a record of a batch: its place, time, key, headers and size. Values are skipped."""

from collections.abc import Iterator
from typing import NamedTuple

from mesh.compression import Allowance, codec_of, decompress
from services.gateway.wire.batches import CRC_AT, HEADER_BYTES, BatchHeader, crc_is_right
from services.gateway.wire.primitives import Buffer, WireError, read_varlong

HEAD_BYTES = 17
"""A schema's GUID with the byte before it."""


class RecordMarks(NamedTuple):
    """The identifying fields of one record, as its producer made them."""

    offset: int
    """The offset from the batch's first record."""
    timestamp: int
    key: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    value_head: bytes | None
    """The first bytes of the value, in which a schema's prefix fits; None for a tombstone."""
    size: int
    """In bytes, without its own length."""


def read_marks(buffer: Buffer, header: BatchHeader, allowance: Allowance) -> Iterator[RecordMarks]:
    """The marks of the batch in `buffer` that `header` belongs to. Raises `WireError` if its bytes are no records."""
    if not crc_is_right(buffer, header):
        raise WireError("batch.crc", header.start + CRC_AT, f"{header.crc:#x} is not that of its bytes")
    packed = memoryview(buffer)[header.start + HEADER_BYTES : header.end]
    yield from marks_in(decompress(codec_of(header.attributes), packed, allowance), header)


def marks_in(body: bytes, header: BatchHeader) -> Iterator[RecordMarks]:
    """The marks of records that are not compressed. Raises `WireError` where the bytes end before the last record."""
    at, end = 0, len(body)
    for _ in range(header.record_count):
        length, at = read_varlong(body, at, end, "record.length")
        stop = at + length
        if length < 1 or stop > end:
            raise WireError("record.length", at, f"{length}, {end - at} bytes left")
        time, at = read_varlong(body, at + 1, stop, "record.timestamp")
        offset, at = read_varlong(body, at, stop, "record.offset")
        key, at = _bytes(body, at, stop, "record.key")
        value_at, at = _span(body, at, stop, "record.value")
        head = None if value_at < 0 else body[value_at : min(value_at + HEAD_BYTES, at)]
        count, at = read_varlong(body, at, stop, "record.headers")
        headers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            name, at = _bytes(body, at, stop, "record.header")
            value, at = _bytes(body, at, stop, "record.header")
            headers.append((name or b"", value))
        yield RecordMarks(offset, header.base_timestamp + time, key, headers, head, length)
        at = stop


def _bytes(body: bytes, at: int, stop: int, field: str) -> tuple[bytes | None, int]:
    start, end = _span(body, at, stop, field)
    return (None if start < 0 else body[start:end]), end


def _span(body: bytes, at: int, stop: int, field: str) -> tuple[int, int]:
    """The start (-1 for null) and end offset of a field."""
    length, start = read_varlong(body, at, stop, field)
    if length == -1:
        return -1, start
    if not 0 <= length <= stop - start:
        raise WireError(field, at, f"length {length}, {stop - start} bytes left")
    return start, start + length
