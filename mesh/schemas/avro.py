"""Avro values by the schemas of a registry, in the types of Python. No I/O."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, cast

import orjson

from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError

_UNREADABLE = (
    EOFError, ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip
"""The exceptions that fastavro raises for bytes that do not fit the schema."""

Reader = Callable[[io.BytesIO, Any, None], Any]
"""As `fastavro.schemaless_reader`."""
WRAPPER = "n__kafka_mesh_wrapper"
"""Without a namespace: names in the schema would be looked for there."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema, ready for use."""

    id: int
    parsed: Any
    has_logical_types: bool
    """Whether reading it yields decimals, dates and the like."""
    reader: Reader
    is_wrapped: bool = False
    """Whether `parsed` is a record with the schema as its only field, which has the same bytes."""


def avro_schema(schema: RegisteredSchema) -> AvroSchema:
    """SchemaError: it can't be used."""
    import fastavro  # 33 modules, which a gateway without Avro never needs

    named: dict[str, Any] = {}
    texts = [each.text for each in (*schema.references.values(), schema)]
    try:
        for text in texts:
            parsed = fastavro.parse_schema(orjson.loads(text), named_schemas=named)
        if is_wrapped := not isinstance(parsed, dict):  # fastavro forgets the named types of a union or a name
            field = {"name": "value", "type": orjson.loads(schema.text)}
            parsed = fastavro.parse_schema({"type": "record", "name": WRAPPER, "fields": [field]}, named_schemas=named)
    except (fastavro.schema.SchemaParseException, LookupError, RecursionError, TypeError, ValueError) as error:
        reason = f"schema {schema.id} of the registry can't be read as Avro: {type(error).__name__}"
        raise SchemaError(reason) from None
    if _has_weightless_lists(parsed, named, set()):
        raise SchemaError(f"schema {schema.id} has lists of what takes no bytes, which may be of any length")
    return AvroSchema(schema.id, parsed, any("logicalType" in text for text in texts), reader_of(parsed), is_wrapped)


def reader_of(parsed: Any) -> Reader:
    """The reader of a schema that fastavro has parsed.

    fastavro's reader in C has no bound on nesting: some thousand levels overflow the stack, and the process ends.
    Schemas that contain themselves allow such values. So fastavro's reader in Python reads these. This reader is
    slower, and raises RecursionError.
    """
    named = parsed.get("__named_schemas", {}) if isinstance(parsed, dict) else {}
    if not _contains_itself(parsed, named, frozenset(), set()):
        from fastavro import schemaless_reader
    else:
        from fastavro._read_py import schemaless_reader
    return cast("Reader", schemaless_reader)


def _contains_itself(schema: Any, named: Mapping[str, Any], within: frozenset[str], seen: set[str]) -> bool:
    """`seen`: names whose definitions are known not to contain themselves."""
    match schema:
        case str():
            return schema in within or (
                schema in named and schema not in seen and _contains_itself(named[schema], named, within, seen)
            )
        case list():
            return any(_contains_itself(each, named, within, seen) for each in schema)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            return _contains_itself(inner, named, within, seen)
        case {"type": "record" | "error", "name": name, "fields": fields}:
            inside = within | {name}
            if any(_contains_itself(each["type"], named, inside, seen) for each in fields):
                return True
            seen.add(name)
    return False


def read(data: io.BytesIO, schema: AvroSchema) -> Any:
    """The value that the data go on with. FormatError: it is not of the schema."""
    try:
        found: Any = schema.reader(data, schema.parsed, None)
        return found["value"] if schema.is_wrapped else found
    except _UNREADABLE as error:
        raise FormatError(f"the value is not of its Avro schema {schema.id}: {type(error).__name__}") from None


def plain(value: Any, *, exact: bool = False) -> Any:
    """Only what CEL knows, which it does not of the types that Avro's logical types become: a decimal is a number, a
    timestamp, date, time or UUID a text. `exact`: a decimal is a text with all its digits.
    """
    match value:
        case dict():
            return {name: plain(each, exact=exact) for name, each in value.items()}
        case list():
            return [plain(each, exact=exact) for each in value]
        case Decimal():
            return str(value) if exact else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case None | bool() | int() | float() | str() | bytes():
            return value
    return str(value)


def _has_weightless_lists(schema: Any, named: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether some bytes of such data could stand for a list that fills the memory."""
    match schema:
        case str() if schema in named and schema not in seen:
            seen.add(schema)
            return _has_weightless_lists(named[schema], named, seen)
        case list():
            return any(_has_weightless_lists(each, named, seen) for each in schema)
        case {"type": "array", "items": items}:
            return _is_weightless(items, named, frozenset()) or _has_weightless_lists(items, named, seen)
        case {"type": "map", "values": values}:
            return _has_weightless_lists(values, named, seen)
        case {"type": "record" | "error", "fields": fields}:
            return any(_has_weightless_lists(each["type"], named, seen) for each in fields)
    return False


def _is_weightless(schema: Any, named: Mapping[str, Any], within: frozenset[str]) -> bool:
    """Whether a value takes no bytes."""
    match schema:
        case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
            return True
        case str() if schema in named and schema not in within:
            return _is_weightless(named[schema], named, within | {schema})
        case {"type": "record" | "error", "fields": fields}:
            return all(_is_weightless(each["type"], named, within) for each in fields)
    return False
