"""The formats by the numbers and names that the contract gives them: integers follow the original's enum."""

from enum import Enum
from typing import Self

from mesh.schemas.schema import SchemaKind
from services.sidecar.formats.auto import Auto
from services.sidecar.formats.binary import Binary
from services.sidecar.formats.codec import Codec
from services.sidecar.formats.plain_json import Json
from services.sidecar.formats.registered import NeedsRegistry
from services.sidecar.formats.text import String


class Format(Enum):
    """Each format has a number, a codec, and the language of its schemas, if the format has schemas."""

    BINARY = 0, Binary(), None
    JSON = 1, Json(), None
    AVRO = 2, NeedsRegistry(), SchemaKind.AVRO
    JSONSCHEMA = 3, NeedsRegistry(), SchemaKind.JSON
    PROTOBUF = 4, NeedsRegistry(), SchemaKind.PROTOBUF
    STRING = 5, String(), None
    AUTO = "auto", Auto(), None
    """For reads only: each record shows the format that its bytes have. It has no number in the original's enum."""

    codec: Codec
    """The codec of the format. The codec of a format with schemas refuses all values, and names the missing registry.
    With a registry, the codec of each schema converts its values."""
    kind: SchemaKind | None

    def __new__(cls, number: int | str, codec: Codec, kind: SchemaKind | None) -> Self:
        member = object.__new__(cls)
        member._value_ = number
        member.codec = codec
        member.kind = kind
        return member

    @property
    def label(self) -> str:
        """The name as answers and instances show it."""
        return self.name.lower()

    @classmethod
    def of_kind(cls, kind: SchemaKind) -> "Format":
        """The format whose schemas are written in a language."""
        return next(member for member in cls if member.kind is kind)

    @classmethod
    def parse(cls, given: object) -> "Format":
        """A format by number, or by name in any case. ValueError in the contract's words."""
        if isinstance(given, Format):
            return given
        if isinstance(given, str) and given.upper() in cls.__members__:
            return cls.__members__[given.upper()]
        if isinstance(given, int) and not isinstance(given, bool) and given in _BY_NUMBER:
            return _BY_NUMBER[given]
        names = ", ".join(f'"{member.name}"' for member in cls if member is not cls.AUTO)
        raise ValueError(f"does not have a value in the enumeration [{names}]")


_BY_NUMBER = {member.value: member for member in Format}


def available_labels() -> str:
    """The formats that need no schema registry, for messages."""
    return ", ".join(member.label for member in Format if member.kind is None and member is not Format.AUTO)
