"""The fields that identify a record of a batch: its place, time, key, headers and size. Values are skipped."""

from collections.abc import Iterator
from typing import NamedTuple

from mesh.compression import Allowance
from services.gateway.wire.batches import BatchHeader
from services.gateway.wire.primitives import Buffer, WireError, read_varlong
from services.gateway.wire.record_bodies import read_body, read_bytes, read_span


class RecordMarks(NamedTuple):
    """The identifying fields of one record, as its producer made them."""

    offset: int
    """The offset from the batch's first record."""
    timestamp: int
    key: bytes | None
    headers: list[tuple[bytes, bytes | None]]
    size: int
    """In bytes, without its own length."""


def read_marks(buffer: Buffer, header: BatchHeader, allowance: Allowance) -> Iterator[RecordMarks]:
    """The marks of the batch in `buffer` that `header` belongs to. Raises `WireError` if its bytes are no records."""
    yield from marks_in(read_body(buffer, header, allowance), header)


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
        key, at = read_bytes(body, at, stop, "record.key")
        _, at = read_span(body, at, stop, "record.value")
        count, at = read_varlong(body, at, stop, "record.headers")
        headers: list[tuple[bytes, bytes | None]] = []
        for _ in range(count):
            name, at = read_bytes(body, at, stop, "record.header")
            value, at = read_bytes(body, at, stop, "record.header")
            headers.append((name or b"", value))
        yield RecordMarks(offset, header.base_timestamp + time, key, headers, length)
        at = stop
