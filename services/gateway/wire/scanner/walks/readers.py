"""Readers of counts, texts and tags for all walks. The rules and the errors are those of `primitives`.

Every reader reads no byte from `end` on, and returns the offset of the next field.
"""

from services.gateway.wire.primitives import MAX_STRING_BYTES, Buffer, WireError, truncated
from services.gateway.wire.scanner.bounds import MAX_ENTRIES
from services.gateway.wire.scanner.walks import octets

_MAX_STRING_BYTES = MAX_STRING_BYTES


def uvarint(data: Buffer, at: int, end: int, field: str) -> tuple[int, int]:
    """An unsigned 32-bit varint: at most five bytes, the last of them below 16."""
    if at < end and data[at] < 0x80:  # nearly all of them
        return data[at], at + 1
    value = shift = 0
    start = at
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift == 28 and at < end and data[at] > 0x0F:
            raise WireError(field, start, "varint does not fit 32 bits")
    raise WireError(field, start, f"varint goes on past the {end - start} bytes left")


def nullable_count(data: Buffer, at: int, end: int, flexible: bool, least: int, field: str) -> tuple[int, int]:
    """An array's count, -1 for a null array. `least` is what one element takes at least."""
    if flexible:
        found, after = uvarint(data, at, end, field)
        found -= 1
    else:
        if end - at < 4:
            raise truncated(field, at, 4, end)
        found = octets.int32(data, at)
        after = at + 4
    if found * least > end - after:
        raise WireError(field, at, f"{found} elements of at least {least} bytes exceed the {end - after} bytes left")
    if found < -1:
        raise WireError(field, at, f"negative count {found}")
    return found, after


def count(data: Buffer, at: int, end: int, flexible: bool, least: int, field: str) -> tuple[int, int]:
    """The same of an array that is never null."""
    found, after = nullable_count(data, at, end, flexible, least, field)
    if found < 0:
        raise WireError(field, at, "null, but this version has no null here")
    return found, after


def nullable_text(data: Buffer, at: int, end: int, flexible: bool, field: str) -> tuple[int, int]:
    """The start (-1 if the text is null) and end offset of a text."""
    if flexible:
        length, start = uvarint(data, at, end, field)
        length -= 1
    else:
        if end - at < 2:
            raise truncated(field, at, 2, end)
        length = octets.int16(data, at)
        start = at + 2
    if length < 0:
        if length == -1:
            return -1, start
        raise WireError(field, at, f"negative length {length}")
    if length > end - start:
        raise WireError(field, start, f"length {length} exceeds the {end - start} bytes left")
    if length > _MAX_STRING_BYTES:
        raise WireError(field, start, f"string of {length} bytes (at most {MAX_STRING_BYTES})")
    return start, start + length


def text(data: Buffer, at: int, end: int, flexible: bool, field: str) -> tuple[int, int]:
    """The start and end offset of a text that is never null."""
    start, stop = nullable_text(data, at, end, flexible, field)
    if start < 0:
        raise WireError(field, at, "null, but this version has no null here")
    return start, stop


def decoded(data: Buffer, start: int, stop: int, field: str) -> str:
    try:
        return octets.text(data, start, stop)
    except UnicodeDecodeError as error:
        raise WireError(field, start + error.start, f"not UTF-8: {error.reason}") from None


def topic_id(at: int, end: int, field: str) -> int:
    """The end offset of a topic id."""
    if end - at < 16:
        raise truncated(field, at, 16, end)
    return at + 16


def skip_tags(data: Buffer, at: int, end: int, field: str) -> int:
    """Skip a tag section."""
    if at < end and data[at] == 0:
        return at + 1
    tags, at = uvarint(data, at, end, field)
    for _ in range(tags):  # each turn takes two bytes or raises, so a lying count ends at `end`
        _, at = uvarint(data, at, end, field)
        size, start = uvarint(data, at, end, field)
        if size > end - start:
            raise WireError(field, at, f"length {size} exceeds the {end - start} bytes left")
        at = start + size
    return at


def take(left: int, entries: int, field: str, at: int) -> int:
    """The number of entries that may still come after these."""
    if entries > left:
        raise WireError(field, at, f"{entries} entries are more than one message may hold (at most {MAX_ENTRIES})")
    return left - entries


def lying(field: str, at: int, length: int, left: int) -> WireError:
    return WireError(field, at, f"length {length}, {left} bytes left")


def finish(message: str, at: int, end: int) -> None:
    if at != end:
        raise WireError(message, at, f"{end - at} bytes follow the end of the message")


def enclose(message: str, buffer: Buffer, start: int, end: int) -> None:
    """Raises if a walk would leave its buffer."""
    if start < 0 or end > len(buffer):
        raise WireError(message, start, f"up to {end} is more than the buffer's {len(buffer)} bytes")
