"""Replaces fields of Avro by their paths, and leaves every other byte as it is.

Theory of operation
1. The bytes are walked along their schema: Avro has no other marks. The bytes beside the paths are read over, so values
   that fastavro would write in another way (blocks of lists, the bits of a NaN) stay what they are.
2. An encrypted field must fit its schema. So only fields of the types string and bytes can be encrypted, without a
   logical type, also within a union; a null stays null. Strings and bytes get the token as their content.
3. A mask fits the schema, too: "***" in strings and bytes, null where a union has it, else the type's empty value (0,
   false, no elements, the first symbol).
4. Lists and maps may come in blocks that say their size. A field within such a block can't be replaced, because the
   size would be wrong; the value is not readable then. Writers that are in use make no such blocks unless they are
   asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mesh.kafka_bytes import WireError
from mesh.protection.documents import Part, Steps, UnreadableError, field_at, joined, steps_behind, steps_of
from mesh.record_transforms import ELEMENTS, JsonPath
from mesh.schemas.avro import avro_schema
from mesh.schemas.schema import RegisteredSchema

MASK: Final = b"***"
LONGEST_PLACE: Final = 200
"""Characters of the place of a fault."""
DEEPEST: Final = 64
"""Levels of a mask: a record that contains itself without a null has none."""
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS: Final = {"int", "long", "enum"}
_TEXTS: Final = {"string", "bytes"}


class NotAvroError(UnreadableError):
    """The bytes are not of their schema, or can't be replaced: why."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of a registry, ready to be walked."""

    root: Any
    named: Mapping[str, Any] = field(repr=False)

    def of(self, schema: Any) -> Any:
        """A schema in the place of its name."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def schema_of(registered: RegisteredSchema) -> Schema:
    """SchemaError."""
    read = avro_schema(registered)
    parsed = read.parsed
    named = parsed.get("__named_schemas", {})
    return Schema(parsed["fields"][0]["type"] if read.is_wrapped else parsed, named)


@dataclass(frozen=True, slots=True)
class _Place:
    start: int
    end: int
    schema: Any
    """The type of the value itself: a branch, if the field is a union."""
    null: bytes
    """The branch of null, if the field is a union that has it."""
    branch: bytes
    """The branch of the value; empty if the field is no union."""


class AvroDocument:
    """A value in Avro. `start`: the length of its prefix."""

    def __init__(self, value: bytes, start: int, schema: Schema, paths: tuple[JsonPath, ...]) -> None:
        """NotAvroError."""
        self._value = value
        self._schema = schema
        self._places: list[_Place] = []
        self.parts: Sequence[Part] = []
        walk = _Walk(value, schema, self._take)
        self._found: list[Part] = []
        try:
            end = walk.value(schema.root, start, steps_of(paths))
        except (WireError, IndexError, KeyError, TypeError, RecursionError) as error:
            raise NotAvroError(f"it is not of its Avro schema: {type(error).__name__}") from None
        if end != len(value):
            raise NotAvroError(f"it is not of its Avro schema: {len(value) - end} bytes follow it")
        self.parts = self._found

    def _take(self, place: _Place, index: int) -> None:
        kind = kind_of(self._schema.of(place.schema))
        at = len(self._places)
        self._places.append(place)
        if kind not in _TEXTS:
            kept = "" if kind == "null" else f"is of type {kind}, and only string and bytes can be encrypted in Avro"
            self._found.append(Part(index, self._value[place.start : place.end], "", at, kept))
            return
        _, start = _number(self._value, place.start + len(place.branch))
        content = self._value[start : place.end]
        token = content.decode() if content.startswith(b"mesh:") and content.isascii() else ""
        logical = place.schema.get("logicalType") if isinstance(place.schema, dict) else None
        kept = f"has the logical type {logical}, which a ciphertext is not" if logical else ""
        self._found.append(Part(index, content, token, at, kept))

    def token(self, part: Part, text: str) -> bytes:
        return self._text(part, text.encode())

    def clear(self, part: Part, clear: bytes) -> bytes:
        return self._text(part, clear)

    def mask(self, part: Part) -> bytes:
        place = self._place(part)
        kind = kind_of(self._schema.of(place.schema))
        logical = place.schema.get("logicalType") if isinstance(place.schema, dict) else None
        if place.null and (kind not in _TEXTS or logical):
            return place.null
        return place.branch + self._blank(place.schema, DEEPEST)

    def with_parts(self, new: Sequence[bytes]) -> bytes:
        return joined(self._value, [(place.start, place.end) for place in self._places], new)

    def _text(self, part: Part, content: bytes) -> bytes:
        place = self._place(part)
        if kind_of(self._schema.of(place.schema)) not in _TEXTS:
            return self._value[place.start : place.end]
        return place.branch + _written(len(content)) + content

    def _place(self, part: Part) -> _Place:
        return self._places[part.at]

    def _blank(self, schema: Any, depth: int) -> bytes:
        if depth == 0:
            raise NotAvroError("its schema has no mask: it contains itself")
        schema = self._schema.of(schema)
        kind = kind_of(schema)
        if kind == "union":
            kinds = [kind_of(self._schema.of(each)) for each in schema]
            branch = kinds.index("null") if "null" in kinds else 0
            return _written(branch) + self._blank(schema[branch], depth - 1)
        if kind in _TEXTS:
            logical = isinstance(schema, dict) and "logicalType" in schema
            content = b"" if logical and kind == "bytes" else NO_UUID if logical else MASK
            return _written(len(content)) + content
        if kind == "record":
            return b"".join(self._blank(each["type"], depth - 1) for each in schema["fields"])
        if kind == "fixed":
            return bytes(schema["size"])
        return bytes(_SIZES.get(kind, 1))  # a number, a symbol, or no elements: one byte of 0


NO_UUID: Final = b"00000000-0000-0000-0000-000000000000"


def kind_of(schema: Any) -> str:
    """The name of the type; "union" for a list."""
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    return "record" if kind in ("record", "error") else kind if isinstance(kind, str) else kind_of(kind)


@dataclass(slots=True)
class _Walk:
    """Walks over bytes by their schema, and reports the fields at paths."""

    data: bytes
    schema: Schema
    report: Callable[[_Place, int], None]
    sized: int = 0
    """How many blocks that say their size are around."""

    def value(self, schema: Any, at: int, steps: Steps) -> int:
        """Reads the value at `at`; returns its end."""
        here = field_at(steps)
        if here is not None:
            return self._field(schema, at, here)
        schema = self.schema.of(schema)
        kind = kind_of(schema)
        if kind == "union":
            branch, at = self._number(at)
            return self.value(schema[branch], at, steps)
        if kind == "record":
            for each in schema["fields"]:
                at = self.value(each["type"], at, steps_behind(steps, each["name"]))
            return at
        if kind == "array":
            inner = steps_behind(steps, ELEMENTS)
            return self._blocks(at, lambda at: self.value(schema["items"], at, inner))
        if kind == "map":
            return self._blocks(at, lambda at: self._entry(schema["values"], at, steps))
        return self._plain(schema, kind, at)

    def _field(self, schema: Any, at: int, index: int) -> int:
        start, null, branch = at, b"", b""
        schema = self.schema.of(schema)
        if kind_of(schema) == "union":
            kinds = [kind_of(self.schema.of(each)) for each in schema]
            null = _written(kinds.index("null")) if "null" in kinds else b""
            chosen, at = self._number(at)
            branch, schema = _written(chosen), schema[chosen]
        end = self.value(schema, at, [])
        if self.sized:
            raise NotAvroError("a field is within a block that says its size: write lists and maps without sizes")
        self.report(_Place(start, end, self.schema.of(schema), null, branch), index)
        return end

    def _blocks(self, at: int, item: Callable[[int], int]) -> int:
        while True:
            count, at = self._signed(at)
            if count == 0:
                return at
            if count < 0:
                _, at = self._number(at)
                self.sized += 1
            for _ in range(abs(count)):
                at = item(at)
                self._within(at)
            self.sized -= count < 0

    def _entry(self, values: Any, at: int, steps: Steps) -> int:
        length, at = self._number(at)
        end = self._within(at + length)
        name = self.data[at:end].decode("utf-8", "replace")
        return self.value(values, end, steps_behind(steps, name))

    def _plain(self, schema: Any, kind: str, at: int) -> int:
        if kind in _TEXTS:
            length, at = self._number(at)
            return self._within(at + length)
        if kind in _NUMBERS:
            return self._signed(at)[1]
        return self._within(at + (schema["size"] if kind == "fixed" else _SIZES[kind]))

    def _within(self, end: int) -> int:
        if end > len(self.data):
            raise IndexError
        return end

    def _signed(self, at: int) -> tuple[int, int]:
        return _number(self.data, at)

    def _number(self, at: int) -> tuple[int, int]:
        """One that is a length, a branch or a size."""
        number, at = _number(self.data, at)
        if number < 0:
            raise IndexError
        return number, at


class _Tracing(_Walk):
    """Remembers the record fields that it is in."""

    __slots__ = ("path",)

    def __init__(self, data: bytes, schema: Schema) -> None:
        _Walk.__init__(self, data, schema, lambda place, index: None)
        self.path: list[str] = []

    def value(self, schema: Any, at: int, steps: Steps) -> int:
        schema = self.schema.of(schema)
        if kind_of(schema) != "record":
            return _Walk.value(self, schema, at, steps)
        for each in schema["fields"]:
            self.path.append(each["name"])
            at = self.value(each["type"], at, steps)
            self.path.pop()
        return at


def place_of_fault(data: bytes, schema: Schema) -> str:
    """The field at which bytes do not go on as their schema says: `#/customer/name`; `#` if they do."""
    walk = _Tracing(data, schema)
    try:
        walk.value(schema.root, 0, [])
    except (WireError, IndexError, KeyError, TypeError, RecursionError):
        return "/".join(["#", *walk.path])[:LONGEST_PLACE]
    return "#"


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and its end. IndexError."""
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise IndexError


def _written(number: int) -> bytes:
    value = number << 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
