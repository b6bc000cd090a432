"""Parts of Kafka's bytes that the gateway and the copies of logs share: the error for damaged bytes, and a length."""

from __future__ import annotations

from struct import Struct as Packing

Buffer = bytes | bytearray | memoryview

INT32 = Packing(">i")


class WireError(ValueError):
    """Bytes that are not what Kafka's protocol says, or values that it cannot carry."""

    def __init__(self, field: str, offset: int, fact: str) -> None:
        super().__init__(f"{field} at byte {offset}: {fact}" if offset >= 0 else f"{field}: {fact}")
        self.field = field
        self.offset = offset
        """The offset of the field in the buffer; -1 for an error of encoding."""
        self.fact = fact


def read_uvarint(buffer: Buffer, position: int, end: int, field: str) -> tuple[int, int]:
    """An unsigned 32-bit varint: at most five bytes, the last of them below 16."""
    if position < end and (first := buffer[position]) < 0x80:  # nearly all of them
        return first, position + 1
    value = shift = 0
    start = position
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift == 28 and position < end and buffer[position] > 0x0F:
            break
    else:
        raise WireError(field, start, f"varint goes on past the {end - start} bytes left")
    raise WireError(field, start, "varint does not fit 32 bits")
