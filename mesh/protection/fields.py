"""The fields that rules protect, and the way to them in values: JSON, or Avro by the schemas of a registry."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from mesh.protection.avro_fields import AvroDocument, Schema, schema_of
from mesh.protection.documents import Document, UnreadableError
from mesh.protection.json_fields import JsonDocument
from mesh.protection.keys import NoKey, Wrapped
from mesh.protection.rule import Rule, What, path_text
from mesh.schemas.framing import framed_in_batch
from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError, SchemaKind

Headers = Sequence[tuple[bytes, bytes | None]]
Schemas = Mapping[bytes, RegisteredSchema | NoKey]
"""By the prefix that names the schema; or why there is none."""
NONE: Final[Schemas] = {}
SCHEMAS_READY: Final = 200
"""Schemas that a process keeps ready."""


class Content(NamedTuple):
    """The parts of a record that protection changes."""

    value: bytes | None
    headers: Headers


class SchemaAwayError(Exception):
    """The registry does not answer about the schema of a value."""


class MissingError(Exception):
    """Data keys that have to be unwrapped first, and prefixes of schemas that have to be asked for."""

    def __init__(self, names: Collection[Wrapped | bytes]) -> None:
        super().__init__(f"{len(names)} data keys or schemas")
        self.names = frozenset(names)


class Fields:
    """The fields that rules protect, and the way to them in values."""

    def __init__(self, rules: Sequence[Rule], schemas: Schemas) -> None:
        self.rules = [rule for rule in rules if rule.what is not What.VALUE]
        self.is_avro = any(rule.what is What.AVRO for rule in self.rules)
        self.paths = tuple(path for rule in self.rules for path in rule.paths)
        self.owners = [rule for rule in self.rules for _ in rule.fields]
        """The rule of each path."""
        self.places = [path_text(path) for path in self.paths]
        self.names = [name for rule in self.rules for name in rule.fields]
        self._schemas = schemas
        self._ready: dict[bytes, Schema] = {}

    def prefix(self, content: Content) -> bytes:
        """The name of the schema that a value needs; empty without one."""
        if not self.is_avro or content.value is None:
            return b""
        try:
            return framed_in_batch("value", content.value, content.headers)[0]
        except FormatError:
            return b""

    def missing(self, content: Content) -> frozenset[bytes]:
        """The prefix of a schema that is not there yet."""
        prefix = self.prefix(content)
        return frozenset([prefix]) if prefix and prefix not in self._schemas else frozenset()

    def document(self, content: Content) -> Document:
        """UnreadableError, MissingError, SchemaAwayError."""
        value = content.value
        assert value is not None
        if not self.is_avro:
            return JsonDocument(value, self.paths)
        prefix = self.prefix(content)
        if not prefix:
            raise UnreadableError("it has no prefix of a schema registry, so it is no Avro that can be read")
        schema = self._ready.get(prefix)
        if schema is None:
            schema = self._ready[prefix] = self._schema(prefix)
        start = len(prefix) if value.startswith(prefix) else 0  # the prefix may be in a header
        return AvroDocument(value, start, schema, self.paths)

    def _schema(self, prefix: bytes) -> Schema:
        found = self._schemas.get(prefix)
        if found is None:
            raise MissingError([prefix])
        if isinstance(found, NoKey):
            if found.is_gone:
                raise UnreadableError(found.reason)
            raise SchemaAwayError(found.reason)
        if found.kind is not SchemaKind.AVRO:
            raise UnreadableError(f"it is {found.kind.value}, and not Avro")
        try:
            return _parsed(
                found.id, found.guid, found.text, tuple((n, each.text) for n, each in found.references.items())
            )
        except SchemaError as error:
            raise UnreadableError(str(error)) from None


@lru_cache(SCHEMAS_READY)
def _parsed(schema_id: int, guid: str, text: str, references: tuple[tuple[str, str], ...]) -> Schema:
    """SchemaError."""
    others = {name: RegisteredSchema(0, SchemaKind.AVRO, each) for name, each in references}
    return schema_of(RegisteredSchema(schema_id, SchemaKind.AVRO, text, others, guid))
