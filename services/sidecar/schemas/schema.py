"""A schema as its registry holds it, with everything that it refers to; and what can be said about one that is not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class SchemaKind(Enum):
    """The languages of schemas, by the registry's names for them."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class SchemaError(ValueError):
    """A schema that cannot be used; the text says what is wrong with it, and where."""


class UnknownSchemaError(SchemaError):
    """The registry knows no such schema."""


class RegistryUnavailableError(Exception):
    """The registry cannot be asked just now. Says nothing about any schema: the same question may be answered later."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a schema refers to, and under which name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredSchema:
    """One registered schema. What an id stands for never changes, so it may be kept as long as there is room.

    Compared by identity: the same id is the same object, and codecs are kept by it.
    """

    id: int
    """What is written before each value; 0 for one that was found by its `guid`, as registries do not tell it then."""
    kind: SchemaKind
    text: str
    references: Mapping[str, "RegisteredSchema"] = field(default_factory=dict)
    """All schemas that it refers to, directly or through others, by the name it refers to them by (an Avro full name,
    the `$ref` of a JSON schema, the import path of a Protobuf file); those referred to come before those that refer."""
    guid: str = ""
    """The registry's other name for it, where the registry has one: the same on all registries."""
    subject: str = ""
    """What it was found under first; empty when it was asked for by id."""
    version: int | None = None
