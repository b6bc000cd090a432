"""Values of a Protobuf schema, by Protobuf's own JSON mapping.

What is read has all fields that cannot be absent, also those at their default, with names in lowerCamelCase and 64 bit
integers as strings: so do the original and Confluent's tools. What is written may name fields either way.
"""

from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, EncodeError

from services.sidecar.formats.codec import FormatError
from services.sidecar.formats.protobuf import message_path
from services.sidecar.formats.protobuf.fitting import Strictness, misfit, missing_fields
from services.sidecar.formats.protobuf.schema_file import SchemaFile, SchemaFiles
from services.sidecar.formats.schema_codec import SchemaCodec
from services.sidecar.schemas.schema import RegisteredSchema

_files = SchemaFiles()

_REFUSALS = (json_format.ParseError, TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""What json_format raises for values of other shapes; only the first is meant for it."""
_UNSHOWABLE = (json_format.SerializeToJsonError, DecodeError, TypeError, ValueError, RecursionError)
"""What it raises for messages that JSON cannot show, such as an Any of an unknown type."""


def codec_of(schema: RegisteredSchema, message: str | None = None) -> SchemaCodec:
    """Writes this message of the schema (the first, if none is named) and reads all of them.

    SchemaError when the schema cannot be used, or has no such message. May block as long as the compiler takes.
    """
    file = _files.get(schema)
    return _Codec(file, file.path_of(message))


class _Codec:
    def __init__(self, file: SchemaFile, path: message_path.MessagePath) -> None:
        self._file = file
        self._prefix = message_path.written(path)
        self._class = file.message_class(path)
        self._strictness = Strictness(self._class)

    def encode(self, value: Any) -> bytes:
        self._strictness.check(value)
        message = self._class()
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._file.pool)
        except _REFUSALS as error:
            raise FormatError(misfit(value, self._class, self._file.pool, error)) from None
        try:
            # one order of map entries, so that equal keys are equal bytes
            return self._prefix + message.SerializeToString(deterministic=True)
        except EncodeError as error:
            raise FormatError(missing_fields(message) or str(error)) from None

    def decode(self, payload: bytes) -> object:
        path, start = message_path.read(payload)
        message_class = self._file.message_class(path)
        try:
            message = message_class.FromString(payload[start:])
        except DecodeError as error:
            raise FormatError(f"not a Protobuf message {message_class.DESCRIPTOR.full_name}: {error}") from None
        try:
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=self._file.pool
            )
        except _UNSHOWABLE as error:
            raise FormatError(
                f"a Protobuf message {message_class.DESCRIPTOR.full_name} that JSON cannot show: {error}"
            ) from None
