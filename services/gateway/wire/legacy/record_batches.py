"""Records of batches (magic 2), read and written; `wire.batches` knows their headers, and more about them.

A record: its length, then attributes (1 byte), timestamp and offset (both from the batch's first), key and value with
their lengths, -1 for null, and headers. All numbers are zigzag varints.
"""

from collections.abc import Iterable, Iterator
from struct import Struct as Packing
from typing import NamedTuple

from crc32c import crc32c

from mesh.compression import Allowance, Codec, codec_of, compress
from services.gateway.wire.batches import CRC_AT, CRC_FROM, HEADER_BYTES, BatchHeader
from services.gateway.wire.legacy.record import NO_TIMESTAMP, Group, Record
from services.gateway.wire.primitives import UINT32, Buffer, WireError, read_varlong
from services.gateway.wire.record_bodies import read_body, read_span

_HEADER = Packing(">qiibIhiqqqhii")
_LENGTH_FROM = 12
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_NO_NUMBER = -1
"""Producer id, epoch and sequence of a producer that does not number its batches."""
_END_OF_TIME = 1 << 62
"""Any two times before it are less than 64 bits apart, as a batch needs it."""


# --- reading -----------------------------------------------------------------------------------------------------


def read_batch(buffer: Buffer, header: BatchHeader, allowance: Allowance) -> Group:
    """The batch that `header` was read from `buffer` for."""
    body = read_body(buffer, header, allowance)
    log_append_time = bool(header.attributes & _LOG_APPEND_TIME)
    next_offset = header.base_offset + header.last_offset_delta + 1
    return Group(codec_of(header.attributes), log_append_time, _records(body, header, log_append_time), next_offset)


def _records(body: bytes, header: BatchHeader, log_append_time: bool) -> Iterator[Record]:
    view, at, end = memoryview(body), 0, len(body)
    base_offset, base_time, max_time = header.base_offset, header.base_timestamp, header.max_timestamp
    for _ in range(header.record_count):
        length, at = read_varlong(body, at, end, "record.length")
        stop = at + length
        if length < 1 or stop > end:
            raise WireError("record.length", at, f"{length}, {end - at} bytes left")
        time, at = read_varlong(body, at + 1, stop, "record.timestamp")
        offset, at = read_varlong(body, at, stop, "record.offset")
        key, at = _bytes(body, view, at, stop, "record.key")
        value, _ = _bytes(body, view, at, stop, "record.value")
        yield Record(base_offset + offset, max_time if log_append_time else base_time + time, key, value)
        at = stop  # headers lie before it


def _bytes(body: bytes, view: memoryview, at: int, stop: int, field: str) -> tuple[memoryview | None, int]:
    start, end = read_span(body, at, stop, field)
    return (None if start < 0 else view[start:end]), end


# --- writing -----------------------------------------------------------------------------------------------------


class Transactional(NamedTuple):
    """Whose transaction a batch is part of, and the number of its first record."""

    producer_id: int
    epoch: int
    sequence: int


def write_batch(groups: Iterable[Group], most_records: int, transactional: Transactional | None = None) -> bytes | None:
    """All records as one batch of a producer without an id, or of a transaction, with offsets from 0 up, in the codec
    of the first group that is compressed. None without records, `WireError` for more than `most_records`."""
    out = bytearray()
    count = 0
    codec = Codec.NONE
    base_time = max_time = NO_TIMESTAMP
    for group in groups:
        codec = codec or group.codec
        for _, time, key, value in group.records:
            if not NO_TIMESTAMP <= time < _END_OF_TIME:
                raise WireError("message.timestamp", -1, f"{time} is no time in ms")
            if count == most_records:
                raise WireError("message set", -1, "holds more records than one request may")
            if count == 0:
                base_time = time
            max_time = max(max_time, time)
            head = b"\x00" + write_varint(time - base_time) + write_varint(count)  # no attributes
            head += b"\x01" if key is None else write_varint(len(key)) + key
            head += b"\x01" if value is None else write_varint(len(value))
            out += write_varint(len(head) + (0 if value is None else len(value)) + 1)
            out += head
            if value is not None:
                out += value
            out.append(0)  # no headers
            count += 1
    if count == 0:
        return None
    body = compress(codec, out) if codec else out
    length = HEADER_BYTES - _LENGTH_FROM + len(body)
    attributes = codec | (0 if transactional is None else _TRANSACTIONAL)
    numbers = transactional or (_NO_NUMBER, _NO_NUMBER, _NO_NUMBER)
    batch = bytearray(_HEADER.pack(0, length, -1, 2, 0, attributes, count - 1, base_time, max_time, *numbers, count))
    batch += body
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)


def _make_varint(number: int) -> bytes:
    value = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = tuple(map(_make_varint, range(8192)))
"""Those of up to two bytes: almost all lengths."""


def write_varint(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 8192 else _make_varint(number)
