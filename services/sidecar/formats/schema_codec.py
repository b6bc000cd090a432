"""What a schema's codec has to do. It is made once per schema, so whatever can be prepared is prepared then.

One module per schema language has a factory:

    formats/avro.py         codec_of(schema: RegisteredSchema, ...) -> SchemaCodec
    formats/json_schema.py  codec_of(schema: RegisteredSchema) -> SchemaCodec
    formats/protobuf.py     codec_of(schema: RegisteredSchema, message: str | None) -> SchemaCodec

It raises SchemaError when the schema itself cannot be used. Making a codec may take long (a compiler runs), but asks
nobody: everything that it needs is in the `RegisteredSchema`. Neither it nor its codec ever runs on the event loop
for the first time of a schema.
"""

from typing import Protocol


class SchemaCodec(Protocol):
    """Values of one schema. It is used by several threads at once.

    Magic byte and schema id are not its business (`framing` has them); the path of message indexes that Protobuf puts
    before its message is.
    """

    def encode(self, value: object) -> bytes:
        """A JSON value (never null) as Kafka bytes. FormatError, with a JSON pointer, when it does not fit."""

    def decode(self, payload: bytes) -> object:
        """Kafka bytes as something that `json_text.dumps` takes. FormatError when they do not fit the schema."""
