"""Reads values of records into what expressions see as `value`: besides JSON, Avro by schema id."""

from __future__ import annotations

import io
import struct
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro

from mesh.judging.values import UnreadableError, ValueReader, check_size, read_json
from mesh.rpc import record_rules
from services.router.forwarding.judging.registry import AvroSchema, SchemaRegistry, UnknownSchemaError
from services.router.forwarding.records import NotNowError

SCHEMA_ID = struct.Struct(">bI")
"""In front of Avro data: magic byte 0, and the id that the registry gave its schema."""


def reader_of(value_format: int, registry: SchemaRegistry | None) -> ValueReader:
    """The reader of values of this format."""
    match value_format:
        case record_rules.VALUE_FORMAT_AVRO:
            return AvroReader(registry)
        case record_rules.VALUE_FORMAT_BYTES:
            return _refuse_bytes
    return read_json


class AvroReader:
    """Reads Avro as Confluent's serializers write it: a byte 0, the schema's id, the data."""

    def __init__(self, registry: SchemaRegistry | None) -> None:
        self._registry = registry

    def __call__(self, value: bytes) -> object:
        check_size(value)
        if self._registry is None:
            raise NotNowError("this router knows no schema registry; set KAFKA_MESH_ROUTER_SCHEMA_REGISTRY_URL")
        if len(value) < SCHEMA_ID.size or value[0] != 0:
            raise UnreadableError("the value is not Avro with a schema id: it does not begin with byte 0 and four more")
        try:
            schema = self._registry.schema(SCHEMA_ID.unpack_from(value)[1])
        except UnknownSchemaError as error:
            raise UnreadableError(str(error)) from None
        return _read_avro(value, schema)


def _read_avro(value: bytes, schema: AvroSchema) -> object:
    data = io.BytesIO(value)
    data.seek(SCHEMA_ID.size)
    try:
        document = fastavro.schemaless_reader(data, schema.parsed, None)
    except (EOFError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise UnreadableError(f"the value is not of its Avro schema {schema.id}: {type(error).__name__}") from None
    return _plain(document) if schema.has_logical_types else document


def _plain(value: Any) -> Any:
    """Only what CEL knows, which it does not of the types that Avro's logical types become: a decimal is a number, a
    timestamp, date, time or UUID a text.
    """
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case Decimal():
            return float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case None | bool() | int() | float() | str() | bytes():
            return value
    return str(value)


def _refuse_bytes(value: bytes) -> object:
    raise UnreadableError("the rule says that values are bytes")
