"""Checks values by their schemas: Avro, JSON Schema, Protobuf. Faults say the place, and nothing of the value.

Avro is read as a whole, with no byte left over. A Protobuf message has all required fields, and none that its schema
lacks: otherwise almost any bytes would be a message.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Final

from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError, SchemaKind

Check = Callable[[bytes], str | None]
"""Why a payload is not valid; None if it is."""
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of one value that is checked: as an object in memory it may take a hundred times as much."""
LARGEST_NESTED: Final = 1024 * 1024
"""As `LARGEST`, by an Avro schema that contains itself: its reader in Python takes some us for each field."""
LARGEST_PLACED: Final = 64 * 1024
"""Bytes of a value in Avro or Protobuf that is walked for the place of its fault, which takes a us for each field."""


def check_of(schema: RegisteredSchema) -> Check:
    """The check of a schema's values. Blocks while a Protobuf schema is compiled. SchemaError: it can't be used."""
    made = {SchemaKind.AVRO: _avro, SchemaKind.JSON: _json, SchemaKind.PROTOBUF: _protobuf}[schema.kind](schema)

    def bounded(payload: bytes) -> str | None:
        if len(payload) > LARGEST:
            return f"has {len(payload)} bytes, and {LARGEST} can be checked"
        fault = made(payload)
        return None if fault is None else f"is not valid by {_name(schema)}: {fault}"

    return bounded


def _name(schema: RegisteredSchema) -> str:
    if schema.subject:
        version = "" if schema.version is None else f"version {schema.version} of "
        return f"{version}subject {schema.subject!r}"
    return f"schema {schema.guid or schema.id}" if schema.guid or schema.id else "the rule's schema"


def _json(schema: RegisteredSchema) -> Check:
    from mesh.schemas.json_schema import JsonSchema  # loaded by the processes that check, not by every gateway

    return JsonSchema(schema).fault


def _avro(schema: RegisteredSchema) -> Check:
    import fastavro

    from mesh.protection.avro_fields import place_of_fault, schema_of
    from mesh.schemas.avro import avro_schema, read

    for name, each in schema.references.items():
        if each.kind is not SchemaKind.AVRO:
            raise SchemaError(f"it refers to {name}, which is {each.kind.value}, no Avro schema")
    ready, walked = avro_schema(schema), schema_of(schema)
    is_nested = ready.reader is not fastavro.schemaless_reader

    def fault(payload: bytes) -> str | None:
        if is_nested and len(payload) > LARGEST_NESTED:
            return f"it has {len(payload)} bytes, and {LARGEST_NESTED} can be checked by a schema that contains itself"
        source = io.BytesIO(payload)
        try:
            read(source, ready)
        except FormatError:
            at = min(source.tell(), len(payload))
            place = place_of_fault(payload, walked) if len(payload) <= LARGEST_PLACED else "#"
            return f"{place} can't be read as Avro, byte {at} of {len(payload)}"
        left = len(payload) - source.tell()
        return f"{left} of {len(payload)} bytes follow it" if left else None

    return fault


def _protobuf(schema: RegisteredSchema) -> Check:
    from mesh.schemas.protobuf.reading import read
    from mesh.schemas.protobuf.schema_file import SchemaFile

    file = SchemaFile(schema)

    def fault(payload: bytes) -> str | None:
        try:
            message = read(file, payload)
        except FormatError as error:
            return str(error)
        if not message.IsInitialized():
            lacking: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # left out by its stub
            return f"it lacks the required field {lacking[0]}"
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() == size:
            return None
        is_placed = len(payload) <= LARGEST_PLACED
        place = next(_unknown(read(file, payload), "#"), "#") if is_placed else "#"
        return f"{place} has a field that its message lacks"

    return fault


def _unknown(message: Any, place: str) -> Iterator[str]:
    """The places of messages with fields that their schema lacks."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    if len(UnknownFieldSet(message)):
        yield place
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        inside = f"{place}/{field.name}"
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for each in value.values():
                    yield from _unknown(each, f"{inside}/*")
        elif field.is_repeated:
            for index, each in enumerate(value):
                yield from _unknown(each, f"{inside}/{index}")
        else:
            yield from _unknown(value, inside)
