"""Values of a Protobuf schema, by Protobuf's own JSON mapping.

A value that was read has all fields that cannot be absent, also fields at their default. Names are in lowerCamelCase,
and 64 bit integers are strings; the original and Confluent's tools do the same. A value to write may use either name of
a field: lowerCamelCase, or the name in the `.proto` text.
"""

from typing import Any

from google.protobuf import json_format
from google.protobuf.message import EncodeError

from mesh.schemas.protobuf import message_path
from mesh.schemas.protobuf.reading import read, shown
from mesh.schemas.protobuf.schema_file import SchemaFile, SchemaFiles
from mesh.schemas.schema import FormatError, RegisteredSchema
from services.sidecar.formats.protobuf.fitting import Strictness, misfit, missing_fields
from services.sidecar.formats.schema_codec import SchemaCodec
from services.sidecar.telemetry import metrics

_files = SchemaFiles(made=metrics.protobuf_compile_seconds.observe)

_REFUSALS = (json_format.ParseError, TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""The exceptions of json_format for a value of another shape; only the first is documented for that."""


def codec_of(schema: RegisteredSchema, message: str | None = None) -> SchemaCodec:
    """The codec that writes this message of the schema (the first, if none is named) and reads all messages.

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
            # map entries get a fixed order, so that equal record keys have equal bytes
            return self._prefix + message.SerializeToString(deterministic=True)
        except EncodeError as error:
            raise FormatError(missing_fields(message) or str(error)) from None

    def decode(self, payload: bytes) -> object:
        return shown(read(self._file, payload), self._file)
