"""The path of indexes that says which message of a schema's file follows: [2, 0] is the first message within the third.

The wire has the number of indexes, then the indexes, each as a zigzag varint. The first message of the file, path [0],
is the single byte 0.
"""

from mesh.schemas.schema import FormatError

MessagePath = tuple[int, ...]

FIRST: MessagePath = (0,)
MAX_DEPTH = 64
"""Deeper nesting than any schema has: the compiler itself ends at 32."""
MAX_INDEX = 2**31 - 1
_MAX_VARINT_BYTES = 5


def written(path: MessagePath) -> bytes:
    """The bytes before the message."""
    if path == FIRST:
        return b"\0"
    return b"".join(_varint(number) for number in (len(path), *path))


def read(payload: bytes) -> tuple[MessagePath, int]:
    """The path, and the position at which the message begins. FormatError when the payload has no path."""
    depth, at = _number(payload, 0)
    if depth == 0:
        return FIRST, at
    if depth > MAX_DEPTH:
        raise FormatError(f"not Protobuf of a registry: a path of {depth} message indexes")
    path = []
    for _ in range(depth):
        index, at = _number(payload, at)
        path.append(index)
    return tuple(path), at


def _varint(number: int) -> bytes:
    rest = number << 1  # zigzag of what is never negative
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _number(payload: bytes, at: int) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(payload[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            if value & 1 or value >> 1 > MAX_INDEX:
                raise FormatError("not Protobuf of a registry: a message index below 0 or beyond 2147483647")
            return value >> 1, at + position + 1
    raise FormatError("not Protobuf of a registry: its message indexes are cut off")
