"""Message sets, the record format before 0.11, read and written.

A message has these fields: offset (8 bytes), size of the rest (4), CRC-32 of the bytes after the CRC (4), magic (1),
attributes (1). In magic 1 a timestamp (8) follows. Then come key and value, each with its length (4), -1 for null.
A compressed message is a *wrapper*: its value is a message set of its own, compressed. Inside a wrapper offsets are
absolute in magic 0; in magic 1 they count from the first, and the wrapper has the offset of its last message. If the
broker has set the timestamps (attribute 8), the wrapper has the timestamp of all its messages.
"""

from collections.abc import Iterable, Iterator
from struct import Struct as Packing
from zlib import crc32

from mesh.compression import Allowance, Codec, codec_of, compress, decompress
from services.gateway.wire.legacy.record import NO_TIMESTAMP, Group, Record
from services.gateway.wire.primitives import INT32, INT64, Buffer, WireError, truncated

_HEAD = Packing(">qiIbb")
_MAGIC_0 = Packing(">bb")
_MAGIC_1 = Packing(">bbq")
_OFFSET_AND_SIZE = Packing(">qiI")
_SIZE_FROM = 12
_CRC_FROM = 16
_BODY_FROM = (18, 26)
"""The offset of the key's length, by magic."""
LOG_APPEND_TIME = 0x08
_NULL = INT32.pack(-1)


# --- reading -----------------------------------------------------------------------------------------------------


def read_message_set(buffer: Buffer, start: int, end: int, allowance: Allowance) -> Iterator[Group]:
    """The messages of `buffer[start:end]`, which holds whole ones alone; each is a group."""
    view = memoryview(buffer)
    at = start
    while at < end:
        stop = _end(view, at, end)
        message, attributes, magic = _message(view, at, stop)
        log_append_time = bool(attributes & LOG_APPEND_TIME)
        codec = codec_of(attributes)
        records = _unwrapped(message, magic, codec, log_append_time, allowance) if codec else iter((message,))
        yield Group(codec, log_append_time, records, message.offset + 1)
        at = stop


def _end(view: memoryview, at: int, end: int) -> int:
    """The end offset of the message at `at`."""
    if end - at < _HEAD.size:
        raise truncated("message", at, _HEAD.size, end)
    _, size, _, magic, _ = _HEAD.unpack_from(view, at)
    if magic not in (0, 1):
        raise WireError("message.magic", at + _CRC_FROM, f"{magic} (message sets have 0 or 1)")
    if not _BODY_FROM[magic] - _SIZE_FROM + 8 <= size <= end - at - _SIZE_FROM:
        raise WireError("message.size", at + 8, f"{size}, {end - at - _SIZE_FROM} bytes left")
    return at + _SIZE_FROM + int(size)


def _unwrapped(
    wrapper: Record, magic: int, codec: Codec, log_append_time: bool, allowance: Allowance
) -> Iterator[Record]:
    """The messages inside a wrapper."""
    if wrapper.value is None:
        raise WireError("message.value", -1, "null in a message that says it is compressed")
    view = memoryview(decompress(codec, wrapper.value, allowance))
    base = wrapper.offset - _last_offset(view) if magic else 0
    at, end = 0, len(view)
    while at < end:
        stop = _end(view, at, end)
        (offset, timestamp, key, value), attributes, _ = _message(view, at, stop)
        if codec_of(attributes):
            raise WireError("message.attributes", at, "a compressed message inside a compressed one")
        yield Record(base + offset, wrapper.timestamp if log_append_time else timestamp, key, value)
        at = stop


def _last_offset(view: memoryview) -> int:
    at, last, end = 0, 0, len(view)
    while at < end:
        stop = _end(view, at, end)
        (last,) = INT64.unpack_from(view, at)
        at = stop
    return last


def _message(view: memoryview, at: int, stop: int) -> tuple[Record, int, int]:
    """The message of `view[at:stop]`, whose head is right; its attributes, its magic."""
    offset, _, crc, magic, attributes = _HEAD.unpack_from(view, at)
    if crc32(view[at + _CRC_FROM : stop]) != crc:
        raise WireError("message.crc", at + _SIZE_FROM, f"{crc:#x} is not that of its {stop - at} bytes")
    timestamp = INT64.unpack_from(view, at + 18)[0] if magic else NO_TIMESTAMP
    key, value_at = _bytes(view, at + _BODY_FROM[magic], stop, "message.key")
    value, end = _bytes(view, value_at, stop, "message.value")
    if end != stop:
        raise WireError("message.size", at + 8, f"{stop - end} bytes follow the value")
    return Record(offset, timestamp, key, value), attributes, magic


def _bytes(view: memoryview, at: int, stop: int, field: str) -> tuple[memoryview | None, int]:
    if stop - at < 4:
        raise truncated(field, at, 4, stop)
    (length,) = INT32.unpack_from(view, at)
    at += 4
    if length == -1:
        return None, at
    if not 0 <= length <= stop - at:
        raise WireError(field, at - 4, f"length {length}, {stop - at} bytes left")
    return view[at : at + length], at + length


# --- writing -----------------------------------------------------------------------------------------------------


def write_message(out: bytearray, magic: int, record: Record, attributes: int = 0) -> None:
    """Append one message. Magic 0 has no room for its timestamp."""
    if magic:
        head = _MAGIC_1.pack(1, attributes, record.timestamp)
    else:
        head = _MAGIC_0.pack(0, attributes)
    key = _NULL if record.key is None else INT32.pack(len(record.key))
    value = _NULL if record.value is None else INT32.pack(len(record.value))
    body = b"".join((head, key, record.key or b"", value, record.value or b""))
    out += _OFFSET_AND_SIZE.pack(record.offset, len(body) + 4, crc32(body))
    out += body


def write_wrapper(out: bytearray, magic: int, group: Group, records: Iterable[Record]) -> None:
    """Append these records of `group` as one compressed message; nothing, if there are none."""
    attributes = LOG_APPEND_TIME if group.log_append_time and magic else 0
    inner = bytearray()
    base: int | None = None
    last, latest = 0, NO_TIMESTAMP
    for offset, timestamp, key, value in records:
        base = offset if base is None else base
        last, latest = offset, max(latest, timestamp)
        write_message(inner, magic, Record(offset - base if magic else offset, timestamp, key, value), attributes)
    if inner:
        compressed = compress(group.codec, inner, faulty_lz4=magic == 0)
        write_message(out, magic, Record(last, latest, None, compressed), group.codec | attributes)
