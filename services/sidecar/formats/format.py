"""The formats by the numbers and names that the contract gives them."""

from enum import Enum
from typing import Self

from services.sidecar.formats.binary import Binary
from services.sidecar.formats.codec import Codec
from services.sidecar.formats.plain_json import Json
from services.sidecar.formats.registered import NeedsRegistry
from services.sidecar.formats.text import String


class Format(Enum):
    """Number and codec. The numbers are those of the contract's enum, not the order of names in its prose."""

    BINARY = 0, Binary()
    JSON = 1, Json()
    AVRO = 2, NeedsRegistry()
    JSONSCHEMA = 3, NeedsRegistry()
    PROTOBUF = 4, NeedsRegistry()
    STRING = 5, String()

    codec: Codec

    def __new__(cls, number: int, codec: Codec) -> Self:
        member = object.__new__(cls)
        member._value_ = number
        member.codec = codec
        return member

    @property
    def label(self) -> str:
        """The name as answers and instances show it."""
        return self.name.lower()

    @classmethod
    def parse(cls, given: object) -> "Format":
        """A format by number, or by name in any case. ValueError in the contract's words."""
        if isinstance(given, Format):
            return given
        for member in cls:
            if given == member.value and not isinstance(given, (bool, float)):
                return member
            if isinstance(given, str) and given.upper() == member.name:
                return member
        names = ", ".join(f'"{member.name}"' for member in cls)
        raise ValueError(f"does not have a value in the enumeration [{names}]")


def available_labels() -> str:
    """The formats that can be used, for messages."""
    return ", ".join(member.label for member in Format if member.codec.available)
