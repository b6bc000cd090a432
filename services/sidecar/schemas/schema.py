"""A schema as its registry holds it, with everything that it refers to."""

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


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredSchema:
    """One registered schema. What an id stands for never changes, so it may be kept as long as there is room.

    Compared by identity: the registry client gives the same object for the same id, and codecs are kept by it.
    """

    id: int
    kind: SchemaKind
    text: str
    references: Mapping[str, "RegisteredSchema"] = field(default_factory=dict)
    """All schemas that it refers to, directly or through others, by the name it refers to them by (an Avro full name,
    the `$ref` of a JSON schema, the import path of a Protobuf file); those referred to come before those that refer."""
    guid: str = ""
    """The registry's other name for it, where the registry has one: the same on all registries."""
    subject: str = ""
    """What it was found under; empty when it was asked for by id."""
    version: int | None = None
