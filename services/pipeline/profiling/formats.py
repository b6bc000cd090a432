"""What a value is, and what can be looked into. No I/O: who knows schemas is asked for them.

Values that Confluent's serializers wrote begin with a zero byte and the number of a schema. Which kind of schema that
is, only the registry knows; without one, a value that goes on as JSON was written by the JSON serializer, and of others
it is only told that they have a schema.
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
    """As profiles.proto has them."""

    NULL = "null"
    JSON = "json"
    TEXT = "text"
    BINARY = "binary"
    JSON_SCHEMA = "json-schema-registry"
    AVRO = "avro-schema-registry"
    PROTOBUF = "protobuf-schema-registry"
    UNKNOWN_SCHEMA = "schema-registry"


class Schema(Protocol):
    """One that a registry knows."""

    @property
    def format(self) -> Format: ...

    def document(self, payload: bytes) -> Any:
        """What a value is in JSON's types; ValueError where it can't be looked into."""


class Schemas(Protocol):
    """A registry, or the lack of one."""

    def find(self, number: int) -> Schema | None:
        """None where the registry has none of this number. LookupError where there is nobody to ask."""


class NoSchemas:
    """There is no registry."""

    def find(self, number: int) -> Schema | None:
        raise LookupError(number)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at a value found."""

    format: Format
    document: Any = None
    """An object or a list, if it is one: fields can be counted in it."""


def look(value: bytes | None, schemas: Schemas) -> Looked:
    """What `value` is."""
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
    """None where the registry does not know of it: then it only begins as if it did."""
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
