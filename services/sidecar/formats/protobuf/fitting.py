"""Finds the place at which a JSON value does not fit a Protobuf message, and the reason.

json_format names the reason but hardly the place, and accepts a few values that it should refuse. So `Strictness` finds
those values before the conversion. `misfit` finds the place after a failed conversion: it tries the parts of the value
one by one, until it has the smallest part that does not fit.
"""

import re
from typing import Any, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from mesh.json_types import type_name
from mesh.schemas.schema import FormatError

MAX_NAMES_SHOWN = 10

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_PART = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_WRAPPED = re.compile(r"^(Failed to parse \S+ field: )+")
_WHERE = re.compile(r" at \"?[\w.\[\]]+\"?\.*$")
_OWN_JSON = frozenset(
    f"google.protobuf.{name}" for name in ("Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp", "Value")
)
"""Messages whose JSON is not an object of their fields; the wrappers are further ones."""


class Strictness:
    """Finds values that json_format would misread: bytes that are no base64, true or false as a number, a fraction as
    an enum, an empty list or text as a message."""

    def __init__(self, message_class: type[Message]) -> None:
        self._descriptor = _descriptor(message_class)
        self._watched: dict[str, dict[str, FieldDescriptor]] = {}

    def check(self, value: object) -> None:
        """Raises FormatError, with the place, for the first such value."""
        try:
            self._check_message(value, self._descriptor, "")
        except RecursionError:
            raise FormatError("#: nested too deeply") from None

    def _check_message(self, value: object, descriptor: Descriptor, pointer: str) -> None:
        if _is_wrapper(descriptor):
            _check_scalar(value, descriptor.fields_by_name["value"], pointer)
            return
        if descriptor.full_name in _OWN_JSON:
            return
        if not isinstance(value, dict):
            raise FormatError(f"#{pointer}: {type_name(value)} found, object expected ({descriptor.full_name})")
        watched = self._watched_fields(descriptor)
        for name, item in value.items():
            field = watched.get(name)
            if field is not None and item is not None:
                for part, at in _parts(field, item, pointer + _segment(name)):
                    self._check_part(part, _value_field(field), at)

    def _check_part(self, value: object, field: FieldDescriptor, pointer: str) -> None:
        if value is None:
            return  # json_format itself refuses null in the wrong place
        if field.message_type is not None:
            self._check_message(value, field.message_type, pointer)
        else:
            _check_scalar(value, field, pointer)

    def _watched_fields(self, descriptor: Descriptor) -> dict[str, FieldDescriptor]:
        """The fields to check, by both their names."""
        found = self._watched.get(descriptor.full_name)
        if found is None:
            fields = [field for field in descriptor.fields if _is_lenient(_value_field(field))]
            found = {name: field for field in fields for name in (field.name, field.json_name)}
            self._watched[descriptor.full_name] = found
        return found


def misfit(value: object, message_class: type[Message], pool: DescriptorPool, error: Exception) -> str:
    """The place, as a JSON pointer, and the fault there; `error` is json_format's error for the whole value."""
    return _Search(pool).message(value, _descriptor(message_class), "", error)


def missing_fields(message: Message) -> str:
    """The required fields that a message lacks, with their places; empty when it lacks none."""
    lacking = []
    errors: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]  # its stubs lack it
    for found in errors[:MAX_NAMES_SHOWN]:
        *outer, name = [one[0] or one[1] for one in _PART.findall(found)]
        lacking.append(f"#{''.join(_segment(one) for one in outer)}: required field '{name}' is missing")
    return "; ".join(lacking)


class _Search:
    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def message(self, value: object, descriptor: Descriptor, pointer: str, error: Exception) -> str:
        """The place and the fault inside `value`, which does not fit its message."""
        if descriptor.full_name in _OWN_JSON or _is_wrapper(descriptor) or not isinstance(value, dict):
            reason = _reason(error)
            return f"#{pointer}: {type_name(value)} found, {descriptor.full_name} expected{': ' * bool(reason)}{reason}"
        for name, item in value.items():
            field = _field(descriptor, name)
            if field is None and not name.startswith("["):
                return f"#{pointer}{_segment(name)}: unknown field; {descriptor.full_name} has {_names(descriptor)}"
            found = self._tried({name: item}, descriptor)
            if found is not None:
                at = pointer + _segment(name)
                return self._field(name, item, field, descriptor, at, found) if field else _no_fit(at, found)
        return _no_fit(pointer, error)

    def _field(
        self, name: str, item: object, field: FieldDescriptor, owner: Descriptor, pointer: str, error: Exception
    ) -> str:
        expected = "object" if _is_map(field) else "array" if field.is_repeated else ""
        if expected and not isinstance(item, dict if expected == "object" else list):
            return f"#{pointer}: {type_name(item)} found, {expected} expected"
        for part, at in _parts(field, item, pointer):
            if expected == "object" and not _is_key(_last(at), field):
                return f"#{at}: a key of type {_type(_key_field(field))} expected"
            alone = part if not expected else {_last(at): part} if expected == "object" else [part]
            found = self._tried({name: alone}, owner)
            if found is None:
                continue
            value_field = _value_field(field)
            if value_field.message_type is not None and part is not None:
                return self.message(part, value_field.message_type, at, found)
            reason = _reason(found)
            return f"#{at}: {type_name(part)} found, {_type(value_field)} expected{': ' * bool(reason)}{reason}"
        return _no_fit(pointer, error)

    def _tried(self, value: dict[str, Any], descriptor: Descriptor) -> Exception | None:
        try:
            json_format.ParseDict(value, GetMessageClass(descriptor)(), descriptor_pool=self._pool)
        except Exception as error:  # noqa: BLE001  # json_format lets any exception of Python through
            return error
        return None


def _descriptor(message_class: type[Message]) -> Descriptor:
    return cast(Descriptor, message_class.DESCRIPTOR)


def _is_lenient(field: FieldDescriptor) -> bool:
    return field.message_type is not None or field.type in _CHECKS


def _check_scalar(value: object, field: FieldDescriptor, pointer: str) -> None:
    check = _CHECKS.get(field.type)
    if check is not None and not check(value):
        raise FormatError(f"#{pointer}: {type_name(value)} found, {_type(field)} expected")


def _is_base64(value: object) -> bool:
    return isinstance(value, str) and _BASE64.fullmatch(value) is not None and len(value.rstrip("=")) % 4 != 1


def _is_number(value: object) -> bool:
    return not isinstance(value, bool)


def _is_enum(value: object) -> bool:
    return not isinstance(value, bool) and not (isinstance(value, float) and not value.is_integer())


_CHECKS = {
    FieldDescriptor.TYPE_BYTES: _is_base64,
    FieldDescriptor.TYPE_FLOAT: _is_number,
    FieldDescriptor.TYPE_DOUBLE: _is_number,
    FieldDescriptor.TYPE_ENUM: _is_enum,
}


def _parts(field: FieldDescriptor, item: object, pointer: str) -> list[tuple[object, str]]:
    """The single values of a field, with their places."""
    if _is_map(field):
        entries = item.items() if isinstance(item, dict) else ()
        return [(value, pointer + _segment(str(key))) for key, value in entries]
    if field.is_repeated:
        return [(value, f"{pointer}/{index}") for index, value in enumerate(item if isinstance(item, list) else ())]
    return [(item, pointer)]


def _field(descriptor: Descriptor, name: str) -> FieldDescriptor | None:
    """The field of this JSON name, or of this name in the `.proto` text."""
    for field in descriptor.fields:
        if field.json_name == name:
            return field
    return descriptor.fields_by_name.get(name)


def _is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and message.has_options and message.GetOptions().map_entry


def _value_field(field: FieldDescriptor) -> FieldDescriptor:
    """The field that has the type of a map's values, or the field itself if the field is no map."""
    message = field.message_type
    return message.fields_by_name["value"] if message is not None and _is_map(field) else field


def _key_field(field: FieldDescriptor) -> FieldDescriptor:
    message = field.message_type
    assert message is not None
    return message.fields_by_name["key"]


def _is_key(key: str, field: FieldDescriptor) -> bool:
    """Whether a JSON name can be a key of this map."""
    match _key_field(field).cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return True
        case FieldDescriptor.CPPTYPE_BOOL:
            return key in ("true", "false")
        case _:
            return key.removeprefix("-").isdecimal()


def _is_wrapper(descriptor: Descriptor) -> bool:
    return descriptor.file.name == "google/protobuf/wrappers.proto"


def _type(field: FieldDescriptor) -> str:
    """A field's type as `.proto` files name it."""
    if field.enum_type is not None:
        values = [value.name for value in field.enum_type.values]
        return f"{field.enum_type.full_name} ({', '.join(values[:MAX_NAMES_SHOWN])}{', ...' * (len(values) > 10)})"
    if field.message_type is not None:
        return field.message_type.full_name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return "bytes as base64 text"
    return FieldDescriptorProto.Type.Name(cast(Any, field.type)).removeprefix("TYPE_").lower()


def _names(descriptor: Descriptor) -> str:
    names = [field.json_name for field in descriptor.fields]
    return ", ".join(names[:MAX_NAMES_SHOWN]) + ", ..." * (len(names) > MAX_NAMES_SHOWN) if names else "no fields"


def _no_fit(pointer: str, error: Exception) -> str:
    return f"#{pointer}: {_reason(error) or 'does not fit the schema'}"


def _reason(error: Exception) -> str:
    """json_format's message without its own description of the place; empty when the message is Python's."""
    origin: BaseException = error
    while origin.__cause__ is not None:
        origin = origin.__cause__
    words = _WHERE.sub("", _WRAPPED.sub("", str(error)).split("\n")[0]).rstrip(".")
    is_meant = isinstance(origin, (json_format.ParseError, ValueError)) and "invalid literal" not in words
    return words if is_meant else ""


def _segment(name: str) -> str:
    """One step of a JSON pointer."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _last(pointer: str) -> str:
    return pointer.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
