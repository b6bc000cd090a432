"""The format of a value, and its content for counting fields. No I/O: an object of the caller looks up schemas.

Values of Confluent's serializers begin with a zero byte and the number of a schema. Only the registry knows the kind of
the schema. Without a registry, a value that continues as JSON was written by the JSON serializer. Other values are only
counted as values with a schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

MAGIC = 0
HEADER_BYTES = 5
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Format(Enum):
    """The formats of profiles.proto."""

    NULL = "null"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"
    JSON_SCHEMA = "json-schema-registry"
    AVRO = "avro-schema-registry"
    PROTOBUF = "protobuf-schema-registry"
    UNKNOWN_SCHEMA = "schema-registry"


class Schema(Protocol):
    """A schema of the registry."""

    @property
    def format(self) -> Format: ...

    def document(self, payload: bytes) -> Any:
        """The value in JSON's types; ValueError if it can't be parsed."""


class Schemas(Protocol):
    """A registry, or none."""

    def find(self, number: int) -> Schema | None:
        """None if the registry has no schema of this number. LookupError if no registry answers."""


class NoSchemas:
    """Used if there is no registry."""

    def find(self, number: int) -> Schema | None:
        raise LookupError(number)


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of the inspection of a value."""

    format: Format
    document: Any = None
    """The value, if it is an object or a list: its fields can be counted."""


def look(value: bytes | None, schemas: Schemas) -> Looked:
    """The format and content of `value`."""
    if value is None:
        return Looked(Format.NULL)
    if len(value) > HEADER_BYTES and value[0] == MAGIC:
        found = _look_by_schema(value, schemas)
        if found is not None:
            return found
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Looked(Format.BINARY)
    if _CONTROL.search(text):
        return Looked(Format.BINARY)
    try:
        return Looked(Format.JSON, _container(json.loads(text)))
    except (ValueError, RecursionError):
        return Looked(Format.TEXT)


def _look_by_schema(value: bytes, schemas: Schemas) -> Looked | None:
    """None if the registry has no such schema: then the value begins like one with a schema by chance."""
    payload = value[HEADER_BYTES:]
    try:
        schema = schemas.find(int.from_bytes(value[1:HEADER_BYTES]))
    except LookupError:
        try:
            return Looked(Format.JSON_SCHEMA, _container(json.loads(payload)))
        except (ValueError, RecursionError):
            return Looked(Format.UNKNOWN_SCHEMA)
    if schema is None:
        return None
    try:
        return Looked(schema.format, _container(schema.document(payload)))
    except (ValueError, RecursionError):
        return Looked(schema.format)


def _container(document: Any) -> Any:
    return document if isinstance(document, Mapping | list) else None
