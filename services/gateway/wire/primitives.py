"""The smallest parts of Kafka's wire format: integers, varints, strings, bytes, array counts, tags.

Readers take `(buffer, position, end, field)` and return `(value, next position)`; writers append to a bytearray.
Rules that hold for every reader here:

1. Nothing is read at or after `end`, and nothing is allocated before the length that asks for it has been
   compared with the bytes that are left. A lying length costs an exception, not memory.
2. The only exception that leaves is `WireError`; it names the field and the offset in the buffer.
3. Byte fields are memoryview slices of the caller's buffer. A caller that keeps a slice longer than the buffer copies
   the slice.
"""

from struct import Struct as Packing

from mesh.kafka_bytes import INT32 as INT32
from mesh.kafka_bytes import Buffer as Buffer
from mesh.kafka_bytes import WireError as WireError
from mesh.kafka_bytes import read_uvarint as read_uvarint

INT16 = Packing(">h")
UINT32 = Packing(">I")
INT64 = Packing(">q")
unpack_int32 = INT32.unpack_from
"""Looked up once, because every request uses it."""

MAX_STRING_BYTES = 0x7FFF
"""A string's length travels as int16 before the flexible versions; brokers keep to that bound afterwards too."""


MAX_TAGS = 256
"""Tagged fields in one struct: Kafka has given out five in a struct so far."""


class UnsupportedVersionError(WireError):
    """A version that our schema does not have."""


def truncated(field: str, position: int, need: int, end: int) -> WireError:
    """The error for a field of fixed size that the buffer is too short for."""
    return WireError(field, position, f"needs {need} bytes, {max(end - position, 0)} left")


# --- reading ---------------------------------------------------------------------------------------------------


def read_int16(buffer: Buffer, position: int, end: int, field: str) -> tuple[int, int]:
    if end - position < 2:
        raise truncated(field, position, 2, end)
    return INT16.unpack_from(buffer, position)[0], position + 2


def read_int32(buffer: Buffer, position: int, end: int, field: str) -> tuple[int, int]:
    if end - position < 4:
        raise truncated(field, position, 4, end)
    return INT32.unpack_from(buffer, position)[0], position + 4


def read_varlong(buffer: Buffer, position: int, end: int, field: str) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits, as records use."""
    value = shift = 0
    start = position
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            break
    else:
        raise WireError(field, start, f"varint goes on past the {end - start} bytes left")
    raise WireError(field, start, "varint does not fit 64 bits")


def _text(buffer: Buffer, position: int, length: int, end: int, field: str) -> tuple[str, int]:
    stop = position + length
    if stop > end:
        raise WireError(field, position, f"length {length} exceeds the {end - position} bytes left")
    if length > MAX_STRING_BYTES:
        raise WireError(field, position, f"string of {length} bytes (at most {MAX_STRING_BYTES})")
    try:
        return str(buffer[position:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise WireError(field, position + error.start, f"not UTF-8: {error.reason}") from None


def read_nullable_string(buffer: Buffer, position: int, end: int, field: str) -> tuple[str | None, int]:
    length, start = read_int16(buffer, position, end, field)
    if length < 0:
        if length == -1:
            return None, start
        raise WireError(field, position, f"negative length {length}")
    return _text(buffer, start, length, end, field)


def read_compact_nullable_string(buffer: Buffer, position: int, end: int, field: str) -> tuple[str | None, int]:
    length, start = read_uvarint(buffer, position, end, field)
    if length == 0:
        return None, start
    return _text(buffer, start, length - 1, end, field)


def read_string(buffer: Buffer, position: int, end: int, field: str) -> tuple[str, int]:
    length, start = read_int16(buffer, position, end, field)
    if length < 0:
        fact = "null, but this version has no null here" if length == -1 else f"negative length {length}"
        raise WireError(field, position, fact)
    return _text(buffer, start, length, end, field)


def read_compact_string(buffer: Buffer, position: int, end: int, field: str) -> tuple[str, int]:
    length, start = read_uvarint(buffer, position, end, field)
    if length == 0:
        raise WireError(field, position, "null, but this version has no null here")
    return _text(buffer, start, length - 1, end, field)


def _length(length: int, start: int, end: int, field: str, position: int) -> None:
    if length > end - start:
        raise WireError(field, position, f"length {length} exceeds the {end - start} bytes left")
    if length < 0:
        raise WireError(field, position, f"negative length {length}")


def read_nullable_bytes(view: memoryview, position: int, end: int, field: str) -> tuple[memoryview | None, int]:
    length, start = read_int32(view, position, end, field)
    if length == -1:
        return None, start
    _length(length, start, end, field, position)
    return view[start : start + length], start + length


def read_compact_nullable_bytes(view: memoryview, position: int, end: int, field: str) -> tuple[memoryview | None, int]:
    length, start = read_uvarint(view, position, end, field)
    if length == 0:
        return None, start
    _length(length - 1, start, end, field, position)
    return view[start : start + length - 1], start + length - 1


def read_bytes(view: memoryview, position: int, end: int, field: str) -> tuple[memoryview, int]:
    value, after = read_nullable_bytes(view, position, end, field)
    if value is None:
        raise WireError(field, position, "null, but this version has no null here")
    return value, after


def read_compact_bytes(view: memoryview, position: int, end: int, field: str) -> tuple[memoryview, int]:
    value, after = read_compact_nullable_bytes(view, position, end, field)
    if value is None:
        raise WireError(field, position, "null, but this version has no null here")
    return value, after


def _count(count: int, after: int, end: int, field: str, position: int, element_size: int) -> None:
    if count * element_size > end - after:
        raise WireError(
            field, position, f"{count} elements of at least {element_size} bytes exceed the {end - after} bytes left"
        )
    if count < 0:
        raise WireError(field, position, f"negative count {count}")


def read_nullable_count(buffer: Buffer, position: int, end: int, field: str, element_size: int) -> tuple[int, int]:
    """An array's count, -1 for a null array. `element_size` is the least that one element takes."""
    count, after = read_int32(buffer, position, end, field)
    if count != -1:
        _count(count, after, end, field, position, element_size)
    return count, after


def read_compact_nullable_count(
    buffer: Buffer, position: int, end: int, field: str, element_size: int
) -> tuple[int, int]:
    count, after = read_uvarint(buffer, position, end, field)
    if count != 0:
        _count(count - 1, after, end, field, position, element_size)
    return count - 1, after


def read_count(buffer: Buffer, position: int, end: int, field: str, element_size: int) -> tuple[int, int]:
    count, after = read_int32(buffer, position, end, field)
    if count == -1:
        raise WireError(field, position, "null, but this version has no null here")
    _count(count, after, end, field, position, element_size)
    return count, after


def read_compact_count(buffer: Buffer, position: int, end: int, field: str, element_size: int) -> tuple[int, int]:
    count, after = read_uvarint(buffer, position, end, field)
    if count == 0:
        raise WireError(field, position, "null, but this version has no null here")
    _count(count - 1, after, end, field, position, element_size)
    return count - 1, after


def read_presence(buffer: Buffer, position: int, end: int, field: str) -> tuple[bool, int]:
    """Before a struct that may be null: whether it follows."""
    if position >= end:
        raise truncated(field, position, 1, end)
    return buffer[position] < 0x80, position + 1


def read_tag_section(view: memoryview, position: int, end: int, field: str) -> tuple[list[tuple[int, int, int]], int]:
    """All tagged fields of a struct as (tag, start, stop), and the end offset of the section."""
    count, position = read_uvarint(view, position, end, field)
    if not count:
        return [], position
    if count > MAX_TAGS:
        raise WireError(field, position, f"{count} tagged fields (at most {MAX_TAGS})")
    tags = []
    for _ in range(count):
        tag, position = read_uvarint(view, position, end, field)
        size, start = read_uvarint(view, position, end, field)
        _length(size, start, end, field, position)
        position = start + size
        tags.append((tag, start, position))
    return tags, position


def skip_tags(buffer: Buffer, position: int, end: int, field: str) -> int:
    """Skip a tag section."""
    if position < end and buffer[position] == 0:
        return position + 1
    count, position = read_uvarint(buffer, position, end, field)
    for _ in range(count):  # each turn takes two bytes or raises, so a lying count ends at `end`
        _, position = read_uvarint(buffer, position, end, field)
        size, start = read_uvarint(buffer, position, end, field)
        _length(size, start, end, field, position)
        position = start + size
    return position


# --- writing ---------------------------------------------------------------------------------------------------


def write_presence(out: bytearray, value: object) -> None:
    """Before a struct that may be null: -1 for null, else 1."""
    out.append(0xFF if value is None else 1)


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _encoded(value: str, field: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise WireError(field, -1, f"not UTF-8: {error.reason}") from None
    if len(data) > MAX_STRING_BYTES:
        raise WireError(field, -1, f"string of {len(data)} bytes (at most {MAX_STRING_BYTES})")
    return data


def write_nullable_string(out: bytearray, value: str | None, field: str) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = _encoded(value, field)
    out += INT16.pack(len(data))
    out += data


def write_compact_nullable_string(out: bytearray, value: str | None, field: str) -> None:
    if value is None:
        out.append(0)
        return
    data = _encoded(value, field)
    write_uvarint(out, len(data) + 1)
    out += data


def write_nullable_bytes(out: bytearray, value: Buffer | None, field: str) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += INT32.pack(len(value))
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None, field: str) -> None:
    if value is None:
        out.append(0)
        return
    write_uvarint(out, len(value) + 1)
    out += value


def _not_null(field: str) -> WireError:
    return WireError(field, -1, "null, but this version has no null here")


def write_string(out: bytearray, value: str | None, field: str) -> None:
    if value is None:
        raise _not_null(field)
    write_nullable_string(out, value, field)


def write_compact_string(out: bytearray, value: str | None, field: str) -> None:
    if value is None:
        raise _not_null(field)
    write_compact_nullable_string(out, value, field)


def write_bytes(out: bytearray, value: Buffer | None, field: str) -> None:
    if value is None:
        raise _not_null(field)
    write_nullable_bytes(out, value, field)


def write_compact_bytes(out: bytearray, value: Buffer | None, field: str) -> None:
    if value is None:
        raise _not_null(field)
    write_compact_nullable_bytes(out, value, field)


def write_nullable_count(out: bytearray, count: int | None, field: str) -> None:
    out += INT32.pack(-1 if count is None else count)


def write_compact_nullable_count(out: bytearray, count: int | None, field: str) -> None:
    write_uvarint(out, 0 if count is None else count + 1)


def write_count(out: bytearray, count: int | None, field: str) -> None:
    if count is None:
        raise _not_null(field)
    out += INT32.pack(count)


def write_compact_count(out: bytearray, count: int | None, field: str) -> None:
    if count is None:
        raise _not_null(field)
    write_uvarint(out, count + 1)


def write_tag_section(out: bytearray, tags: dict[int, bytes]) -> None:
    """Tagged fields in the order of their numbers, as the protocol asks."""
    write_uvarint(out, len(tags))
    for tag in sorted(tags):
        write_uvarint(out, tag)
        write_uvarint(out, len(tags[tag]))
        out += tags[tag]
