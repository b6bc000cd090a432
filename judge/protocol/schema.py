"""Fields of Kafka's flexible messages, and how they are written and read.

A message is a mapping from field names to values. The judge has a codec of its own on purpose: a gateway that
misreads a field would be believed by a judge that shares its codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


class ProtocolError(Exception):
    """Bytes that are no answer to what was asked."""


@dataclass(slots=True)
class Reader:
    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ProtocolError(f"{size} bytes wanted at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: struct.Struct) -> int:
        found: int = layout.unpack(self.take(layout.size))[0]
        return found

    def varint(self) -> int:
        """Unsigned."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ProtocolError(f"a varint without end at {self.at}")

    def zigzag(self) -> int:
        """Signed, as in records."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


@dataclass(frozen=True, slots=True)
class Type:
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]
    default: Any = None


def _fixed(code: str, default: Any) -> Type:
    layout = struct.Struct(code)
    return Type(layout.pack, lambda reader: reader.number(layout), default)


def _write_bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else varint(len(value) + 1) + value


def _read_bytes(reader: Reader) -> bytes | None:
    size = reader.varint()
    return reader.take(size - 1) if size else None


def _read_string(reader: Reader) -> str | None:
    found = _read_bytes(reader)
    return None if found is None else found.decode()


INT8, INT16, INT32, INT64 = (_fixed(code, 0) for code in (">b", ">h", ">i", ">q"))
BOOL = _fixed(">?", False)
STRING = Type(lambda value: _write_bytes(None if value is None else value.encode()), _read_string, "")
NULLABLE = Type(STRING.write, STRING.read, None)
BYTES = Type(_write_bytes, _read_bytes, None)
UUID = Type(lambda value: value, lambda reader: reader.take(16), bytes(16))

Fields = Mapping[str, Type]


def struct_of(fields: Fields) -> Type:
    """A structure; absent fields have their default, and tagged fields are skipped."""

    def write(values: Message) -> bytes:
        unknown = values.keys() - fields.keys()
        if unknown:
            raise ProtocolError(f"no field is called {', '.join(sorted(unknown))}")
        return b"".join(kind.write(values.get(name, kind.default)) for name, kind in fields.items()) + b"\0"

    def read(reader: Reader) -> Message:
        found = {name: kind.read(reader) for name, kind in fields.items()}
        for _ in range(reader.varint()):
            reader.varint()
            reader.take(reader.varint())
        return found

    return Type(write, read, {})


def array(of: Type | Fields) -> Type:
    kind = of if isinstance(of, Type) else struct_of(of)

    def write(values: Sequence[Any] | None) -> bytes:
        return b"\0" if values is None else varint(len(values) + 1) + b"".join(map(kind.write, values))

    def read(reader: Reader) -> list[Any] | None:
        size = reader.varint()
        return [kind.read(reader) for _ in range(size - 1)] if size else None

    return Type(write, read, ())
