"""The interface of a format. A null never reaches a format: a null key or value is a Kafka null in every format."""

from typing import Protocol


class Codec(Protocol):
    """One format. A codec has no state, so one object serves all threads."""

    def encode(self, value: object) -> bytes:
        """A JSON value as Kafka bytes. FormatError when it does not fit."""

    def decode(self, data: bytes) -> object:
        """Kafka bytes as something that `json_text.dumps` takes. FormatError when they do not fit."""
