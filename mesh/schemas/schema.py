"""A registered schema with all schemas that it refers to, and the errors about schemas."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class SchemaKind(Enum):
    """The languages of schemas, by the registry's names for them."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class FormatError(ValueError):
    """The value does not fit its format; the text says what was found and what was expected."""


class SchemaError(ValueError):
    """A schema cannot be used; the text has the fault and its place."""


class UnknownSchemaError(SchemaError):
    """The registry knows no such schema."""


class RegistryUnavailableError(Exception):
    """The registry cannot be asked now. The error says nothing about a schema: the registry may answer later."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema to another schema, with the name that the text uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredSchema:
    """One registered schema. The schema of an id never changes, so it may be kept as long as there is room.

    Schemas compare by identity: one id has one object, and that object is the key of the cached codecs.
    """

    id: int
    """The id before each value. It is 0 for a schema found by its `guid`, because registries then send no id."""
    kind: SchemaKind
    text: str
    references: Mapping[str, "RegisteredSchema"] = field(default_factory=dict)
    """All schemas that this schema refers to, directly or through others, by the name in the reference. The name is an
    Avro full name, the `$ref` of a JSON schema, or the import path of a Protobuf file. Each schema comes after the
    schemas that it refers to."""
    guid: str = ""
    """The schema's identity on all registries, if the registry has one."""
    subject: str = ""
    """The subject under which the schema was found first; empty for a look-up by id."""
    version: int | None = None
