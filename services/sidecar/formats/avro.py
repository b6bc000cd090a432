"""Avro: JSON values on the HTTP side, Avro binary in Kafka.

fastavro writes and reads the bytes, in C. fastavro does not know Avro's JSON: unions whose values are tagged by their
type (`{"int": 5}`), and bytes as text. Its errors do not name the place in a value that does not fit. confluent-kafka's
serializer is fastavro with a look-up and a walk over the schema around each record. So this module compiles a schema
once into small functions. They turn JSON into the values that fastavro writes, and back, if the two differ at all.

Unions cost nothing that way. Avro writes a record with one field as that field alone. So fastavro gets
`["null", "string"]` as a union of null and a record with one field called `string`. fastavro then reads
`{"string": "x"}` without help.

A caller may write a value of a union in two ways:

- a tagged value, with the name of its type;
- a plain value, which gets the first type of the union that is for such JSON, else the first type that accepts it.
  A number without a fraction is an int before it is a double; text is a string before it is bytes.

A member that the schema does not have is refused. A missing member gets its default.
"""

import io
import struct
from collections.abc import Mapping
from typing import Any

import fastavro
import orjson

from mesh.schemas.avro import reader_of
from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError, SchemaKind
from services.sidecar.formats import avro_values
from services.sidecar.formats.avro_types import (
    NO_DEFAULT,
    AvroType,
    Branch,
    Field,
    Record,
    Union,
    array,
    enum,
    in_progress,
    mapping,
)
from services.sidecar.formats.avro_values import Value
from services.sidecar.formats.misfit import MisfitError

_UNREADABLE = (EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError, MemoryError, struct.error)
"""The exceptions that fastavro raises for bytes that do not fit the schema."""


def codec_of(schema: RegisteredSchema, message: str | None = None, *, tagged_unions: bool = True) -> "AvroCodec":
    """The codec of a schema. SchemaError when it, or one that it refers to, is no Avro schema."""
    compiler = _Compiler(tagged_unions=tagged_unions)
    try:
        for name, referred in schema.references.items():
            if referred.kind is not SchemaKind.AVRO:
                raise SchemaError(f"it refers to {name}, which is {referred.kind.value}, no Avro schema")
            compiler.compiled(orjson.loads(referred.text))
        return AvroCodec(compiler.compiled(orjson.loads(schema.text)))
    except orjson.JSONDecodeError as error:
        raise SchemaError(f"no Avro schema: not JSON: {error}") from None
    except RecursionError:
        raise SchemaError("nested too deeply") from None
    except (AttributeError, KeyError, TypeError, ValueError, fastavro.schema.SchemaParseException) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"no Avro schema: {type(error).__name__}: {error}") from None


class AvroCodec:
    """Values of one schema."""

    def __init__(self, root: AvroType) -> None:
        self._wire = fastavro.parse_schema(root.wire)
        self._reader = reader_of(self._wire)
        self._write, self._read = root.value.write, root.value.read

    def encode(self, value: object) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._wire, self._write(value))
        except MisfitError as error:
            raise error.as_format_error() from None
        except RecursionError:
            raise FormatError("#: nested too deeply") from None
        except (
            ValueError,
            TypeError,
            OverflowError,
            struct.error,
        ) as error:  # text that is not UTF-8
            raise FormatError(f"#: {error}") from None
        return out.getvalue()

    def decode(self, payload: bytes) -> object:
        source = io.BytesIO(payload)
        try:
            written = self._reader(source, self._wire, None)
            if left := len(payload) - source.tell():
                raise FormatError(f"not of its Avro schema: {left} of {len(payload)} bytes are left over")
            return written if self._read is None else self._read(written)
        except RecursionError:
            raise FormatError("nested too deeply") from None
        except _UNREADABLE as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"not of its Avro schema: {type(error).__name__}: {error}") from None


class _Compiler:
    """Makes types of schemas. The compiler remembers named types, because later schemas may refer to them."""

    def __init__(self, *, tagged_unions: bool) -> None:
        self._tagged_unions = tagged_unions
        self._types: dict[str, AvroType] = {}
        self._definitions: dict[str, Any] = {}
        """The definitions that fastavro gets at the first use of a name; later uses give the name alone."""
        self._defined: set[str] = set()
        self._defaults: list[Field] = []
        self._wrappers = 0

    def compiled(self, schema: Any) -> AvroType:
        """The type of one schema, with all types inside it."""
        root = self._type(schema, "")
        for one in self._defaults:
            one.written_default = _written_default(one)
        self._defaults.clear()
        self._defined.clear()
        return AvroType(root.name, self._with_definitions(root.wire), root.value, root.weighs)

    def _type(self, schema: Any, namespace: str) -> AvroType:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise SchemaError(f"no Avro schema: a type is text, a list or an object with a type, not {schema!r:.100}")
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                name = _full_name(schema, namespace)
                symbols = list(schema["symbols"])
                wire: dict[str, Any] = {"type": "enum", "name": self._our_name(name), "symbols": symbols}
                return self._keep(name, AvroType(name, None, enum(symbols)), wire)
            case "fixed":
                name, size = _full_name(schema, namespace), int(schema["size"])
                wire = {"type": "fixed", "name": self._our_name(name), "size": size}
                value = self._logical(schema, "fixed") or avro_values.fixed(size)
                return self._keep(name, AvroType(name, None, value, weighs=size > 0), wire)
            case "array":
                items = self._type(schema["items"], namespace)
                if not items.weighs:
                    raise SchemaError("it has a list of what takes no bytes, which may be of any length")
                return AvroType("array", {"type": "array", "items": items.wire}, array(items.value))
            case "map":
                values = self._type(schema["values"], namespace)
                return AvroType("map", {"type": "map", "values": values.wire}, mapping(values.value))
            case _:
                base = self._type(kind, namespace)
                value = self._logical(schema, base.name) or base.value
                return AvroType(base.name, base.wire, value, base.weighs)

    def _named(self, name: str, namespace: str) -> AvroType:
        if value := avro_values.primitive(name):
            return AvroType(name, name, value, weighs=name != "null")
        within = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._types.get(within) or self._types.get(name)
        if found is None:
            raise SchemaError(f"type {within} is not known: neither in the schema nor in one that it refers to")
        return found

    def _union(self, schemas: list[Any], namespace: str) -> AvroType:
        types = [self._type(schema, namespace) for schema in schemas]
        branches = []
        for one in types:
            if one.name != "null":
                self._wrappers += 1
                branches.append(Branch(one, f"w{self._wrappers}"))
        wires = iter([branch.wire for branch in branches])
        wire = ["null" if one.name == "null" else next(wires) for one in types]
        union = Union(branches, len(branches) < len(types), self._tagged_unions)
        return AvroType("union", wire, union.value)

    def _record(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        name = _full_name(schema, namespace)
        record = Record(name)
        self._types[name] = AvroType(name, self._our_name(name), in_progress(record))
        fields = [
            Field(one["name"], self._type(one["type"], name.rpartition(".")[0]), one.get("default", NO_DEFAULT))
            for one in schema["fields"]
        ]
        record.complete(fields)
        self._defaults += [one for one in fields if one.default is not NO_DEFAULT]
        value = Value(record.write, None if record.is_read_as_it_is else record.read, record.suits)
        wire = {
            "type": "record",
            "name": self._our_name(name),
            "fields": [{"name": one.name, "type": one.type.wire} for one in fields],
        }
        return self._keep(name, AvroType(name, None, value, weighs=any(one.type.weighs for one in fields)), wire)

    def _keep(self, name: str, made: AvroType, definition: dict[str, Any]) -> AvroType:
        """Every use of the type has our name for it; `_with_definitions` puts the definition at the first use."""
        kept = AvroType(made.name, definition["name"], made.value, made.weighs)
        self._types[name] = kept
        self._definitions[definition["name"]] = definition
        return kept

    def _our_name(self, name: str) -> str:
        """A name without a namespace, so fastavro need not resolve it. Different full names get different names."""
        return "n_" + name.replace("_", "__").replace(".", "_d_")

    def _logical(self, schema: Mapping[str, Any], base: str) -> Value | None:
        given = schema.get("logicalType")
        return avro_values.logical(given, base, dict(schema)) if isinstance(given, str) else None

    def _with_definitions(self, wire: Any) -> Any:
        match wire:
            case str() if wire in self._definitions and wire not in self._defined:
                self._defined.add(wire)
                return self._with_definitions(self._definitions[wire])
            case str():
                return wire
            case list():
                return [self._with_definitions(one) for one in wire]
        made = dict(wire)
        for member in ("items", "values"):
            if member in made:
                made[member] = self._with_definitions(made[member])
        if "fields" in made:
            made["fields"] = [{**one, "type": self._with_definitions(one["type"])} for one in made["fields"]]
        return made


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = schema["name"]
    if not isinstance(name, str) or not name:
        raise SchemaError(f"no Avro schema: a {schema['type']} without a name")
    within = schema.get("namespace", namespace)
    return name if "." in name or not within else f"{within}.{name}"


def _written_default(one: Field) -> Any:
    """The default in fastavro's form. Avro writes a default plain; the default of a union is of its first type."""
    try:
        return one.type.value.write(one.default)
    except MisfitError as error:
        return error
