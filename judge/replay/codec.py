"""Reads and writes any message of any version, as its specification says.

A message is a mapping from Kafka's own field names to values. Fields that a version lacks are absent. A tagged field
that was not written stands at its default; tags that no specification knows stay as bytes under `UNKNOWN_TAGS`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from judge.protocol.schema import Message, ProtocolError, Reader, Type, varint
from judge.replay.specification import Field, MessageSpec

UNKNOWN_TAGS = "unknown tags"
NUMBERS = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


def decode(spec: MessageSpec, version: int, data: bytes) -> Message:
    """Raises ProtocolError if the bytes are not such a message from their first to their last."""
    message, end = decode_beginning(spec, version, data)
    if end != len(data):
        raise ProtocolError(f"{spec.name} v{version}: {len(data) - end} bytes behind its end")
    return message


def decode_beginning(spec: MessageSpec, version: int, data: bytes) -> tuple[Message, int]:
    """The message, and where it ends. Brokers pass over what clients write behind that."""
    reader = Reader(data)
    message: Message = _message(spec, version).read(reader)
    return message, reader.at


def encode(spec: MessageSpec, version: int, message: Message) -> bytes:
    return _message(spec, version).write(message)


@lru_cache(maxsize=1024)
def _message(spec: MessageSpec, version: int) -> Type:
    return _struct(spec.fields, version, version in spec.flexible)


def _struct(fields: tuple[Field, ...], version: int, flexible: bool) -> Type:
    present = [field for field in fields if version in field.versions]
    plain = [(f.name, _field(f, version, flexible)) for f in present if not (flexible and version in f.tagged)]
    tagged = {f.tag: (f.name, _field(f, version, flexible)) for f in present if flexible and version in f.tagged}

    def read(reader: Reader) -> Message:
        found: Message = {name: kind.read(reader) for name, kind in plain}
        if not flexible:
            return found
        found.update((name, kind.default) for name, kind in tagged.values())
        for _ in range(reader.varint()):
            tag, size = reader.varint(), reader.varint()
            if tag in tagged:
                end = reader.at + size
                name, kind = tagged[tag]
                found[name] = kind.read(reader)
                if reader.at != end:
                    raise ProtocolError(f"tagged field {name} ends at {reader.at}, and says that it ends at {end}")
            else:
                found.setdefault(UNKNOWN_TAGS, {})[tag] = reader.take(size)
        return found

    def write(message: Message) -> bytes:
        written = b"".join(kind.write(message.get(name, kind.default)) for name, kind in plain)
        if not flexible:
            return written
        tags: dict[int, bytes] = dict(message.get(UNKNOWN_TAGS, {}))
        for tag, (name, kind) in tagged.items():
            if message.get(name, kind.default) != kind.default:
                tags[tag] = kind.write(message[name])
        return (
            written
            + varint(len(tags))
            + b"".join(varint(tag) + varint(len(tags[tag])) + tags[tag] for tag in sorted(tags))
        )

    return Type(write, read, {name: kind.default for name, kind in (*plain, *tagged.values())})


def _field(field: Field, version: int, flexible: bool) -> Type:
    element = _element(field, version, flexible)
    default = field.default if field.default != {} or not field.parts else element.default
    if field.is_array:
        return _array(element, flexible)
    if field.parts and version in field.nullable:
        return _nullable(element, default)
    return Type(element.write, element.read, default)


def _element(field: Field, version: int, flexible: bool) -> Type:
    if field.parts:
        return _struct(field.parts, version, flexible)
    if field.kind in NUMBERS:
        layout = struct.Struct(NUMBERS[field.kind])
        return Type(layout.pack, lambda reader: reader.number(layout), 0)
    if field.kind == "uuid":
        return Type(bytes, lambda reader: reader.take(16), bytes(16))
    read, write = _sized(flexible, ">h" if field.kind == "string" else ">i")
    if field.kind != "string":
        return Type(write, read, b"")

    def read_text(reader: Reader) -> str | None:
        found = read(reader)
        return None if found is None else found.decode(errors="surrogateescape")

    return Type(lambda value: write(None if value is None else value.encode(errors="surrogateescape")), read_text, "")


def _sized(flexible: bool, code: str) -> tuple[Callable[[Reader], bytes | None], Callable[[bytes | None], bytes]]:
    """Bytes behind their length."""
    layout = struct.Struct(code)

    def read_plain(reader: Reader) -> bytes | None:
        size = reader.number(layout)
        return None if size < 0 else reader.take(size)

    def read_compact(reader: Reader) -> bytes | None:
        size = reader.varint()
        return reader.take(size - 1) if size else None

    def write_plain(value: bytes | None) -> bytes:
        return layout.pack(-1) if value is None else layout.pack(len(value)) + value

    def write_compact(value: bytes | None) -> bytes:
        return b"\0" if value is None else varint(len(value) + 1) + value

    return (read_compact, write_compact) if flexible else (read_plain, write_plain)


def _array(element: Type, flexible: bool) -> Type:
    layout = struct.Struct(">i")

    def read(reader: Reader) -> list[Any] | None:
        size = reader.varint() - 1 if flexible else reader.number(layout)
        if size > len(reader.data):
            raise ProtocolError(f"an array of {size} elements at {reader.at} of {len(reader.data)} bytes")
        return None if size < 0 else [element.read(reader) for _ in range(size)]

    def write(value: list[Any] | None) -> bytes:
        size = -1 if value is None else len(value)
        return (varint(size + 1) if flexible else layout.pack(size)) + b"".join(map(element.write, value or ()))

    return Type(write, read, [])


def _nullable(element: Type, default: object) -> Type:
    def read(reader: Reader) -> Any:
        there = reader.take(1)[0] < 0x80
        return element.read(reader) if there else None

    return Type(lambda value: b"\xff" if value is None else b"\1" + element.write(value), read, default)
