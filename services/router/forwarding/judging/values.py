"""Reads values of records into what expressions see as `value`: besides JSON, Avro by schema id."""

from __future__ import annotations

import io

from mesh.judging.values import UnreadableError, ValueReader, check_size, read_json
from mesh.rpc import record_rules
from mesh.schemas.avro import plain, read
from mesh.schemas.framing import ID_LENGTH
from mesh.schemas.schema import FormatError, SchemaError
from services.router.forwarding.judging.registry import SchemaRegistry
from services.router.forwarding.records import NotNowError


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
        if len(value) < ID_LENGTH or value[0] != 0:
            raise UnreadableError("the value is not Avro with a schema id: it does not begin with byte 0 and four more")
        data = io.BytesIO(value)
        try:
            schema = self._registry.schema(int.from_bytes(data.read(ID_LENGTH)[1:]))
            document = read(data, schema)
        except (FormatError, SchemaError) as error:
            raise UnreadableError(str(error)) from None
        return plain(document) if schema.has_logical_types else document


def _refuse_bytes(value: bytes) -> object:
    raise UnreadableError("the rule says that values are bytes")
