"""Text: a JSON string on one side, UTF-8 on the other."""

from mesh.json_types import type_name
from mesh.schemas.schema import FormatError


class String:
    """A JSON string; in Kafka its UTF-8 bytes."""

    def encode(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise FormatError(f"{type_name(value)} found, string expected")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"not text: {error.reason} at {error.start}") from None

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"not UTF-8: {error.reason} at byte {error.start}") from None
