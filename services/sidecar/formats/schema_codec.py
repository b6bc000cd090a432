"""The interface of a schema's codec. A codec is made once per schema, and prepares at that time all that it can.

One module per schema language has a factory:

    formats/avro.py         codec_of(schema: RegisteredSchema, ...) -> SchemaCodec
    formats/json_schema.py  codec_of(schema: RegisteredSchema) -> SchemaCodec
    formats/protobuf.py     codec_of(schema: RegisteredSchema, message: str | None) -> SchemaCodec

A factory raises SchemaError when the schema itself cannot be used. Making a codec may take long (a compiler runs), but
needs no network: the `RegisteredSchema` has all data. The factory never runs on the event loop, and nor does the first
use of a codec.
"""

from typing import Protocol


class SchemaCodec(Protocol):
    """Values of one schema. It is used by several threads at once.

    A codec does not handle the magic byte and the schema id (`framing` does). A codec does handle the path of message
    indexes that Protobuf puts before its message.
    """

    def encode(self, value: object) -> bytes:
        """A JSON value (never null) as Kafka bytes. FormatError, with a JSON pointer, when it does not fit."""

    def decode(self, payload: bytes) -> object:
        """Kafka bytes as something that `json_text.dumps` takes. FormatError when they do not fit the schema."""
