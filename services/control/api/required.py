"""Fields that the contract requires (google.api.field_behavior): a request without one of them is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from google.api import field_behavior_pb2, resource_pb2
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from services.control.domain.errors import InvalidField


def check_required(request: Message, where: str = "") -> None:
    """InvalidField when the request, or a message in it, lacks a field that the contract requires."""
    required, nested = _fields(request.DESCRIPTOR)
    for field in required:
        if not (request.HasField(field.name) if field.has_presence else getattr(request, field.name)):
            raise InvalidField(f"{where}{field.name}", f"is required{_form(field)}")
    for field in nested:
        if field.is_repeated:
            for index, each in enumerate(getattr(request, field.name)):
                check_required(each, f"{where}{field.name}[{index}].")
        elif request.HasField(field.name):
            check_required(getattr(request, field.name), f"{where}{field.name}.")


@cache
def _fields(message: Descriptor) -> tuple[list[FieldDescriptor], list[FieldDescriptor]]:
    """The required fields of a message, and its fields in whose messages there are some."""
    required = [field for field in message.fields if _is_required(field)]
    nested = [field for field, held in _messages(message) if any(map(_is_required, _reached(held)))]
    return required, nested


def _reached(message: Descriptor) -> Iterator[FieldDescriptor]:
    """The fields of a message and of all messages that it may hold. Messages may hold themselves."""
    known, open_ = {message.full_name}, [message]
    while open_:
        here = open_.pop()
        yield from here.fields
        for _, held in _messages(here):
            if held.full_name not in known:
                known.add(held.full_name)
                open_.append(held)


def _messages(message: Descriptor) -> list[tuple[FieldDescriptor, Descriptor]]:
    """The fields that hold messages, with the types of these."""
    held = [(field, field.message_type) for field in message.fields]
    return [(field, kind) for field, kind in held if kind is not None and not kind.GetOptions().map_entry]


def _is_required(field: FieldDescriptor) -> bool:
    return field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]


def _form(field: FieldDescriptor) -> str:
    """The form of the resource name that belongs there."""
    kind = field.GetOptions().Extensions[resource_pb2.resource_reference].type
    if not kind:
        return ""
    message = descriptor_pool.Default().FindMessageTypeByName(f"mesh.v1.{kind.partition('/')[2]}")
    return f": {message.GetOptions().Extensions[resource_pb2.resource].pattern[0]}"
