"""Reads bytes for the walks, which have checked the bounds, and writes them.

Only this module differs when it is compiled: `octets.pxd` has each function in C, and compiled walks take the functions
from there. The caller checks bounds; in C nothing here checks them.
"""

from struct import Struct as Packing

from services.gateway.wire.primitives import INT32, INT64, Buffer, write_compact_count

_INT16 = Packing(">h").unpack_from
_INT32 = Packing(">i").unpack_from
_FLOAT = Packing("=f").pack
_INT64 = Packing(">q").unpack_from


def of(buffer: Buffer) -> Buffer:
    """The object that the other functions read from."""
    return buffer


def int16(octets: Buffer, at: int) -> int:
    return int(_INT16(octets, at)[0])


def int32(octets: Buffer, at: int) -> int:
    return int(_INT32(octets, at)[0])


def int64(octets: Buffer, at: int) -> int:
    return int(_INT64(octets, at)[0])


def put32(buffer: bytearray | memoryview, at: int, value: int) -> None:
    INT32.pack_into(buffer, at, value)


def put64(buffer: bytearray | memoryview, at: int, value: int) -> None:
    INT64.pack_into(buffer, at, value)


def extend(out: bytearray, size: int) -> int:
    """The offset of the new bytes. The caller fills all of them."""
    at = len(out)
    out += bytes(size)
    return at


def set32(out: bytearray, at: int, value: int) -> None:
    INT32.pack_into(out, at, value)


def set64(out: bytearray, at: int, value: int) -> None:
    INT64.pack_into(out, at, value)


def add32(out: bytearray, value: int) -> None:
    out += INT32.pack(value)


def add_float32(out: bytearray, value: float) -> None:
    """As the machine has floats."""
    out += _FLOAT(value)


def add_count(out: bytearray, flexible: bool, count: int) -> None:
    if flexible:
        write_compact_count(out, count, "count")
    else:
        add32(out, count)


def text(octets: Buffer, start: int, stop: int) -> str:
    """Raises UnicodeDecodeError."""
    return str(octets[start:stop], "utf-8")


def copy(octets: Buffer, start: int, stop: int) -> bytes:
    return bytes(octets[start:stop])


def holds(octets: Buffer, start: int, stop: int, word: bytes) -> bool:
    """Whether these bytes have the word in them."""
    return word in bytes(octets[start:stop])
