"""Messages of a Protobuf schema as JSON values, by Protobuf's own JSON mapping.

All fields that cannot be absent are there, also fields at their default. Names are in lowerCamelCase, and 64 bit
integers are texts, as the mapping has them. `with_numbers` makes numbers of these texts, for expressions.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from mesh.schemas.protobuf import message_path
from mesh.schemas.protobuf.schema_file import SchemaFile
from mesh.schemas.schema import FormatError

_UNSHOWABLE = (json_format.SerializeToJsonError, DecodeError, TypeError, ValueError, RecursionError)
"""The exceptions of json_format for a message that JSON cannot show, such as an Any of an unknown type."""
_LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def read(file: SchemaFile, payload: bytes) -> Message:
    """The message behind its path of indexes. FormatError when the bytes do not fit the schema."""
    path, start = message_path.read(payload)
    message_class = file.message_class(path)
    try:
        return message_class.FromString(payload[start:])
    except DecodeError as error:
        raise FormatError(f"not a Protobuf message {message_class.DESCRIPTOR.full_name}: {error}") from None


def shown(message: Message, file: SchemaFile) -> Any:
    """FormatError when JSON cannot show the message."""
    try:
        return json_format.MessageToDict(
            message, always_print_fields_with_no_presence=True, descriptor_pool=file.pool
        )  # fmt: skip
    except _UNSHOWABLE as error:
        name = message.DESCRIPTOR.full_name
        raise FormatError(f"a Protobuf message {name} that JSON cannot show: {error}") from None


def with_numbers(document: Any, descriptor: Any) -> Any:
    """The document of a message, with numbers in place of the texts of 64 bit integers. Changes the document."""
    if not isinstance(document, dict) or descriptor.full_name.startswith("google.protobuf."):
        return document
    for field in descriptor.fields:
        if field.json_name not in document:
            continue
        value, nested = document[field.json_name], field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            of = nested.fields_by_name["value"]
            document[field.json_name] = {key: _number(each, of) for key, each in value.items()}
        elif isinstance(value, list):
            document[field.json_name] = [_number(each, field) for each in value]
        else:
            document[field.json_name] = _number(value, field)
    return document


def _number(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return with_numbers(value, field.message_type)
    return int(value) if field.cpp_type in _LONG else value
