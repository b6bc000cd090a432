"""Kafka's codecs, with a bound on the decompressed size: a few bytes can stand for gigabytes.

gzip    one member.
snappy  blocks with lengths in the framing of xerial's snappy-java, as Java writes it; or one raw block (librdkafka).
lz4     one LZ4 frame. In message sets of magic 0 the checksum of the frame's header wrongly covers the magic number too
        (KAFKA-3160). Both checksums are read. The wrong one is written for clients that expect it.
zstd    frames.
"""

import zlib
from enum import IntEnum
from mmap import mmap
from typing import Any

import cramjam

from mesh.kafka_bytes import INT32, Buffer, WireError, read_uvarint

FIELD = "compressed records"


class Codec(IntEnum):
    """As in the lowest three bits of the attributes of a batch or of an old message."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Allowance:
    """How many bytes may still come out of compressed ones."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise WireError(FIELD, 0, "more comes out of them than one request may hold")


def codec_of(attributes: int) -> Codec:
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise WireError("records.attributes", -1, f"codec {attributes & 0x07} is not known") from None


def decompress(codec: Codec, data: Buffer, allowance: Allowance) -> bytes:
    """The decompressed `data`. Raises `WireError` if `data` is damaged, or holds more than is allowed."""
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return _gunzip(data, allowance)
            case Codec.SNAPPY:
                return _unsnappy(data, allowance)
            case Codec.LZ4:
                return _within(allowance, cramjam.lz4, _mended(data), len(data) * _LZ4_RATIO)
            case Codec.ZSTD:
                return _within(allowance, cramjam.zstd, data, allowance.left)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise WireError(FIELD, 0, f"not {codec.name.lower()}: {error}") from error


def compress(codec: Codec, data: Buffer, *, faulty_lz4: bool = False) -> bytes:
    """`faulty_lz4`: with the header checksum that readers of magic 0 expect."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL, wbits=_GZIP_FORMAT)
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            return _lz4(data, faulty=faulty_lz4)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def _within(allowance: Allowance, codec: Any, data: Buffer, most: int) -> bytes:
    """Decompress into memory that can't grow. The system gives its pages only as they are written."""
    with mmap(-1, max(1, min(allowance.left, most))) as room:
        count: int = codec.decompress_into(data, room)
        allowance.take(count)
        return room[:count]


# --- gzip --------------------------------------------------------------------------------------------------------

GZIP_LEVEL = 1
"""Three times as fast as the default, for a tenth more bytes."""
_GZIP_FORMAT = zlib.MAX_WBITS | 16


def _gunzip(data: Buffer, allowance: Allowance) -> bytes:
    inflate = zlib.decompressobj(_GZIP_FORMAT)
    out = inflate.decompress(data, allowance.left + 1)
    allowance.take(len(out))
    if not inflate.eof:
        raise WireError(FIELD, 0, f"gzip is cut short after {len(data)} bytes")
    if inflate.unused_data:  # no producer writes several members, and to look for many of them is slow
        raise WireError(FIELD, len(data) - len(inflate.unused_data), "bytes follow the end of gzip")
    return out


# --- snappy ------------------------------------------------------------------------------------------------------

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL + INT32.pack(1) + INT32.pack(1)
"""With its version, and the oldest version that reads it."""
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_RATIO = 64
"""A copy of at most 64 bytes takes two or more: a block that claims to hold more than this is a lie."""


def _unsnappy(data: Buffer, allowance: Allowance) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, allowance)
    blocks: list[bytes] = []
    at, end = len(_XERIAL_HEADER), len(data)
    while at < end:
        (length,) = INT32.unpack_from(data, at) if end - at >= 4 else (-1,)
        at += 4
        if not 0 < length <= end - at:
            raise WireError(FIELD, at - 4, f"snappy block of {length} bytes, {max(end - at, 0)} left")
        blocks.append(_snappy_block(data[at : at + length], allowance))
        at += length
    return b"".join(blocks)


def _snappy_block(data: Buffer, allowance: Allowance) -> bytes:
    length, _ = read_uvarint(data, 0, len(data), FIELD)
    if length > len(data) * _SNAPPY_RATIO:
        raise WireError(FIELD, 0, f"snappy block of {len(data)} bytes claims to hold {length}")
    allowance.take(length)
    return bytes(cramjam.snappy.decompress_raw(data))


def _snappy(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        out += INT32.pack(len(block))
        out += block
    return bytes(out)


# --- lz4 ---------------------------------------------------------------------------------------------------------

_FLAGS_AT = 4
"""After the frame's magic number: flags, block size, for some a content size, then one byte of checksum."""
_LZ4_LEVEL = 1
_LZ4_RATIO = 256
"""Most bytes that one byte of LZ4 stands for."""
_HAS_CONTENT_SIZE = 0x08
_HAS_DICTIONARY = 0x01


def _mended(data: Buffer) -> Buffer:
    """The frame with the right header checksum, if it came with the wrong one of KAFKA-3160."""
    at = _checksum_at(data)
    if len(data) <= at or data[at] != lz4_header_checksum(bytes(data[:at])):
        return data
    return b"".join((data[:at], bytes((lz4_header_checksum(bytes(data[_FLAGS_AT:at])),)), data[at + 1 :]))


def _checksum_at(data: Buffer) -> int:
    flags = data[_FLAGS_AT] if len(data) > _FLAGS_AT else 0
    return _FLAGS_AT + 2 + (8 if flags & _HAS_CONTENT_SIZE else 0) + (4 if flags & _HAS_DICTIONARY else 0)


def _lz4(data: Buffer, *, faulty: bool) -> bytes:
    # The first Java reader knows independent blocks alone, and no content size.
    compressor = cramjam.lz4.Compressor(level=_LZ4_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = bytes(compressor.finish())
    if not faulty:
        return frame
    at = _checksum_at(frame)
    return b"".join((frame[:at], bytes((lz4_header_checksum(frame[:at]),)), frame[at + 1 :]))


def lz4_header_checksum(header: bytes) -> int:
    """The checksum of a frame's flags and sizes. With the magic number before them, the wrong one of KAFKA-3160."""
    return _xxh32(header) >> 8 & 0xFF


def _xxh32(data: bytes) -> int:
    """xxHash32 with seed 0, for a header of a few bytes."""
    mask, p1, p2, p3, p4, p5 = 0xFFFF_FFFF, 0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> 32 - bits) & mask

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "little")

    at = 0
    if len(data) >= 16:
        lanes = [p1 + p2 & mask, p2, 0, -p1 & mask]
        while len(data) - at >= 16:
            lanes = [rotated(lane + word(at + 4 * i) * p2 & mask, 13) * p1 & mask for i, lane in enumerate(lanes)]
            at += 16
        value = sum(map(rotated, lanes, (1, 7, 12, 18))) & mask
    else:
        value = p5
    value = value + len(data) & mask
    while len(data) - at >= 4:
        value = rotated(value + word(at) * p3 & mask, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        value = rotated(value + byte * p5 & mask, 11) * p1 & mask
    value = (value ^ value >> 15) * p2 & mask
    value = (value ^ value >> 13) * p3 & mask
    return value ^ value >> 16
