"""Record batches of the judge: written as producers write them, read as strictly as nobody else reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import cramjam
from crc32c import crc32c

from judge.protocol.schema import ProtocolError, Reader, zigzag

_HEAD = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_REST = struct.Struct(">hiqqqhii")  # attributes, last delta, first and last time, producer, epoch, sequence, count
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
LZ4_HEAD = bytes.fromhex("04224d18604082")
"""A frame of blocks that do not depend on each other, up to 64 KiB each: Kafka reads no other."""


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    sequence: int
    transactional: bool
    control: bool
    records: tuple[tuple[int, bytes], ...]
    """Offset and value."""

    @property
    def aborts(self) -> bool:
        """Whether this control batch marks an abort."""
        return self.control and self.records[0][1][:4] == b"\0\0\0\0"


def encode(
    values: Sequence[bytes],
    *,
    now_ms: int,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
) -> bytes:
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    attributes = compression | (_TRANSACTIONAL if transactional else 0)
    last, count = len(values) - 1, len(values)
    rest = _REST.pack(attributes, last, now_ms, now_ms, producer_id, epoch, sequence, count)
    rest += _compressed(records, compression)
    return _HEAD.pack(0, len(rest) + 9, -1, 2, crc32c(rest)) + rest


def decode(data: bytes) -> Iterator[Batch]:
    """Whole batches; a broker may cut the last one off."""
    at = 0
    while at + _HEAD.size <= len(data):
        base, length, _, magic, crc = _HEAD.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data):
            return
        rest = data[at + _HEAD.size : end]
        at = end
        if magic != 2:
            raise ProtocolError(f"batch at offset {base}: magic {magic}")
        if crc32c(rest) != crc:
            raise ProtocolError(f"batch at offset {base}: its checksum is wrong")
        attributes, last, _, _, producer, epoch, sequence, count = _REST.unpack_from(rest)
        reader = Reader(_plain(rest[_REST.size :], Compression(attributes & 7)))
        control = bool(attributes & _CONTROL)
        records = tuple(_read_record(reader, base, control=control) for _ in range(count))
        if reader.at != len(reader.data):
            raise ProtocolError(f"batch at offset {base}: bytes follow its {count} records")
        yield Batch(base, base + last, producer, epoch, sequence, bool(attributes & _TRANSACTIONAL), control, records)


def _record(delta: int, value: bytes) -> bytes:
    body = b"\0\0" + zigzag(delta) + zigzag(-1) + zigzag(len(value)) + value + b"\0"
    return zigzag(len(body)) + body


def _read_record(reader: Reader, base: int, *, control: bool) -> tuple[int, bytes]:
    size = reader.zigzag()
    end = reader.at + size
    reader.take(1)
    reader.zigzag()
    delta = reader.zigzag()
    key, value = (reader.take(size) if (size := reader.zigzag()) >= 0 else b"" for _ in range(2))
    for _ in range(reader.zigzag()):
        reader.take(reader.zigzag())
        if (size := reader.zigzag()) >= 0:
            reader.take(size)
    if reader.at != end:
        raise ProtocolError(f"record {base + delta} ends at {reader.at}, not at {end}")
    return base + delta, key if control else value


def _compressed(data: bytes, how: Compression) -> bytes:
    match how:
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
        case Compression.LZ4:
            block = bytes(cramjam.lz4.compress_block(data, store_size=False))
            return LZ4_HEAD + struct.pack("<I", len(block)) + block + bytes(4)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case Compression.NONE:
            return data


def _plain(data: bytes, how: Compression) -> bytes:
    match how:
        case Compression.GZIP:
            return bytes(cramjam.gzip.decompress(data))
        case Compression.SNAPPY:
            return _plain_snappy(data)
        case Compression.LZ4:
            return bytes(cramjam.lz4.decompress(data))
        case Compression.ZSTD:
            return bytes(cramjam.zstd.decompress(data))
        case Compression.NONE:
            return data


def _plain_snappy(data: bytes) -> bytes:
    """Java writes blocks behind a header of 16 bytes; others write one block without any."""
    if data[:8] != b"\x82SNAPPY\0":
        return bytes(cramjam.snappy.decompress_raw(data))
    at, found = 16, b""
    while at < len(data):
        [size] = struct.unpack_from(">i", data, at)
        found += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found
