"""The tables of docs/reference/grpc-calls.md and sidecar-operations.md: each call that a contract has."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from google.api import field_behavior_pb2
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    MethodDescriptor,
    ServiceDescriptor,
)

from docs.proto_comments import PROTO, comments
from docs.tables import REFERENCE, filled, table
from mesh.rpc.v1 import access_pb2
from services.sidecar.api.contract import DOCUMENT, METHODS, REST_V2_DOCUMENT

Described = Descriptor | EnumDescriptor | FieldDescriptor | MethodDescriptor | ServiceDescriptor

_TYPES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}

GRPC, OPERATIONS = REFERENCE / "grpc-calls.md", REFERENCE / "sidecar-operations.md"


def files() -> dict[Path, str]:
    """Both pages, each with the tables that its contract gives."""
    operations = {"": _operations(DOCUMENT), "rest_v2": _operations(REST_V2_DOCUMENT)}
    return {GRPC: filled(GRPC, {"": _services()}), OPERATIONS: filled(OPERATIONS, operations)}


def services() -> list[ServiceDescriptor]:
    """The services of the contract, by name."""
    found = [
        service
        for proto in sorted((PROTO / "mesh" / "v1").glob("*.proto"))
        for service in importlib.import_module(f"mesh.rpc.v1.{proto.stem}_pb2").DESCRIPTOR.services_by_name.values()
    ]
    return sorted(found, key=lambda each: str(each.name))


def _services() -> str:
    parts = [part for service in services() for part in (f"## {service.name}", _said(service), _methods(service))]
    messages, enums = _reached(services())
    parts += ["## Messages", *(_message(each) for each in messages), "## Enums", *(_enum(each) for each in enums)]
    return "\n\n".join(part for part in parts if part)


def _methods(service: ServiceDescriptor) -> str:
    rows = [
        (
            f"`{each.name}`",
            _sent(each.input_type, each.client_streaming),
            _sent(each.output_type, each.server_streaming),
            _roles(each),
            _said(each),
        )
        for each in service.methods
    ]
    return table(("method", "request", "response", "roles", "meaning"), rows)


def _sent(message: Descriptor, streams: bool) -> str:
    return ("a stream of " if streams else "") + _link(message)


def _roles(method: MethodDescriptor) -> str:
    access = method.GetOptions().Extensions[access_pb2.access]
    return ", ".join(access_pb2.Role.Name(role).removeprefix("ROLE_").lower() for role in access.roles)


def _reached(contract: Iterable[ServiceDescriptor]) -> tuple[list[Descriptor], list[EnumDescriptor]]:
    """Messages and enums of the mesh that requests and responses have, by name."""
    open_ = [
        each for service in contract for method in service.methods for each in (method.input_type, method.output_type)
    ]
    messages: dict[str, Descriptor] = {}
    enums: dict[str, EnumDescriptor] = {}
    while open_:
        message = open_.pop()
        if message.full_name in messages or not _is_ours(message):
            continue
        if not message.GetOptions().map_entry:
            messages[message.full_name] = message
        open_ += [field.message_type for field in message.fields if field.message_type is not None]
        enums |= {field.enum_type.full_name: field.enum_type for field in message.fields if field.enum_type is not None}
    return [messages[name] for name in sorted(messages)], [enums[name] for name in sorted(enums)]


def _message(message: Descriptor) -> str:
    rows = [(f"`{field.name}`", _type(field), _said_of_field(field)) for field in message.fields]
    return _entry(message, table(("field", "type", "meaning"), rows) if rows else "No fields.")


def _enum(enum: EnumDescriptor) -> str:
    values = [(f"`{value.name}`", comments().get(f"{enum.full_name}.{value.name}", "")) for value in enum.values]
    return _entry(enum, table(("value", "meaning"), values))


def _entry(described: Descriptor | EnumDescriptor, rows: str) -> str:
    return "\n\n".join(part for part in (f"### {_short(described)}", _said(described), rows) if part)


def _type(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return f"map of {_type(message.fields_by_name['key'])} to {_type(message.fields_by_name['value'])}"
    kind = message or field.enum_type
    name = f"`{_TYPES[field.type]}`" if kind is None else _link(kind) if _is_ours(kind) else f"`{kind.full_name}`"
    return f"several {name}" if field.is_repeated else name


def _link(described: Descriptor | EnumDescriptor) -> str:
    name = _short(described)
    return f"[{name}](#{name.lower().replace('.', '')})"


def _is_ours(described: Descriptor | EnumDescriptor) -> bool:
    return str(described.full_name).startswith("mesh.v1.")


def _short(described: Descriptor | EnumDescriptor) -> str:
    return str(described.full_name).removeprefix("mesh.v1.")


def _said(described: Described) -> str:
    return comments().get(described.full_name, "")


def _said_of_field(field: FieldDescriptor) -> str:
    behaviours = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    words = (field_behavior_pb2.FieldBehavior.Name(each).replace("_", " ").capitalize() for each in behaviours)
    return " ".join(part for part in (_said(field), *(f"{word}." for word in words)) if part)


def _operations(document: Path) -> str:
    contract: dict[str, Any] = yaml.safe_load(document.read_text(encoding="utf-8"))
    rows = [
        (f"`{method.upper()} {path}`", operation["summary"], _scopes(operation), ", ".join(_statuses(operation)))
        for path, operations in contract["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    ]
    return table(("call", "meaning", "scopes of the token", "statuses"), rows)


def _scopes(operation: Mapping[str, Any]) -> str:
    ways = (
        " and ".join(f"`{scope}`" for scopes in each.values() for scope in scopes)
        for each in operation.get("security", ())
    )
    return " or ".join(ways) or "none"


def _statuses(operation: Mapping[str, Any]) -> list[str]:
    return [str(status) for status in operation["responses"]]
