"""From a registered schema to descriptors: its own file, and all that it imports.

A registry gives `.proto` text. A registry that does not translate gives a serialized FileDescriptorProto in base64, if
a client registered such a descriptor. References may mix both forms. Well-known files need no reference; our own files
win over references with their names, as in all clients.

A registry may make text of a descriptor. That text has map fields as repeated fields of messages with
`option map_entry`, which the compiler refuses. So this module marks the option before compiling, and puts the option
back afterwards. Such messages count in message paths, because an index counts the messages of the text; the messages
that the compiler makes of `map<,>` do not count.
"""

import ast
import base64
import binascii
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from mesh.schemas.protobuf.compiler import compiled, is_import_path
from mesh.schemas.protobuf.message_path import MessagePath
from mesh.schemas.schema import RegisteredSchema, SchemaError, SchemaKind

_WELL_KNOWN = (
    *(
        f"google.protobuf.{name}_pb2"
        for name in (
            *("any", "source_context", "type", "api", "descriptor", "duration", "empty", "field_mask", "struct"),
            *("timestamp", "wrappers"),
        )
    ),
    *(
        f"google.type.{name}_pb2"
        for name in (
            *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval"),
            *("latlng", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
        )
    ),
)
"""Modules of the files that every client of a schema registry knows."""
_CONFLUENT = ("meta", "type/decimal", "type/variant", "types/decimal")
"""Further such files, in the client of a registry that confluent-kafka has."""

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")
_MAP_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_MARK = 536_268_911
"""A field number that no schema reserves."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Descriptors of a schema."""

    files: list[FileDescriptorProto]
    """Imports first; the last is the schema's own."""
    messages: dict[MessagePath, str]
    """Full names of the messages of the schema's own file, in the order of the file."""


def sources_of(schema: RegisteredSchema) -> Sources:
    """The descriptors of a schema. SchemaError when the schema cannot be compiled, or a reference is missing.

    The call blocks; never call it on the event loop.
    """
    known = well_known()
    given = {name: one for name, one in schema.references.items() if name not in known}
    own = _own_name(given)
    texts: dict[str, str] = {}
    serialized: dict[str, FileDescriptorProto] = {}
    for name, one in (*given.items(), (own, schema)):
        if one.kind is not SchemaKind.PROTOBUF:
            raise SchemaError(f"reference {name!r} is a schema of kind {one.kind.value}, not PROTOBUF")
        descriptor = _deserialized(name, one.text)
        if descriptor is not None:
            serialized[name] = descriptor
        else:
            texts[name] = _MAP_ENTRY.sub(f"reserved {_MARK};", one.text)
    found = {**known, **serialized}
    if texts:
        wanted = [own] if own in texts else list(texts)
        libraries = [FileDescriptorSet(file=files.values()) for files in (serialized, known)]
        found |= {file.name: file for file in compiled(texts, wanted, libraries)}
    prefix = f"{found[own].package}." if found[own].package else ""
    messages = dict(_messages(found[own].message_type, prefix, (), counts_map_entries=own in serialized))
    for name in texts.keys() & found.keys():
        _restore_map_entries(found[name].message_type)
    return Sources(list(_in_order(own, found)), messages)


@cache
def well_known() -> Mapping[str, FileDescriptorProto]:
    """Files that need no reference, by import path."""
    files: dict[str, FileDescriptorProto] = {}
    for module in _WELL_KNOWN:
        descriptor = importlib.import_module(module).DESCRIPTOR
        files[descriptor.name] = FileDescriptorProto.FromString(descriptor.serialized_pb)
    client = find_spec("confluent_kafka")
    for folder in client.submodule_search_locations or () if client else ():
        for name in _CONFLUENT:
            generated = Path(folder, "schema_registry", "confluent", f"{name}_pb2.py")
            file = FileDescriptorProto.FromString(_serialized_in(generated.read_text()))
            files[file.name] = file
    return files


def _serialized_in(module: str) -> bytes:
    """The descriptor in the text of a generated module. The import of the module would load the client: 15 MB."""
    for node in ast.walk(ast.parse(module)):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and called.attr == "AddSerializedFile":
            return bytes(ast.literal_eval(node.args[0]))
    raise LookupError("the module has no descriptor")


def _own_name(references: Iterable[str]) -> str:
    """A free file name for the schema: a registered schema has no file name of its own."""
    name = "schema.proto"
    while name in references:
        name = f"the_{name}"
    return name


def _deserialized(name: str, text: str) -> FileDescriptorProto | None:
    """The descriptor, if the registry keeps a descriptor; `.proto` text always has characters that base64 lacks."""
    if not _BASE64.fullmatch(text):
        return None
    if not is_import_path(name):
        raise SchemaError(f"a schema is referred to as {name[:200]!r}, which is no path of a .proto file")
    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(text))
    except (binascii.Error, ValueError, DecodeError):
        return None
    descriptor.name = name
    return descriptor


def _messages(
    types: Iterable[DescriptorProto], prefix: str, outer: MessagePath, *, counts_map_entries: bool
) -> Iterator[tuple[MessagePath, str]]:
    counted = [one for one in types if counts_map_entries or not one.options.map_entry]
    for index, one in enumerate(counted):
        path = (*outer, index)
        yield path, prefix + one.name
        yield from _messages(one.nested_type, f"{prefix}{one.name}.", path, counts_map_entries=counts_map_entries)


def _restore_map_entries(types: Iterable[DescriptorProto]) -> None:
    for one in types:
        for index, reserved in enumerate(one.reserved_range):
            if reserved.start == _MARK:
                del one.reserved_range[index]
                one.options.map_entry = True
                break
        _restore_map_entries(one.nested_type)


def _in_order(own: str, files: Mapping[str, FileDescriptorProto]) -> Iterator[FileDescriptorProto]:
    """All files that the schema's own file needs, each after its imports."""
    done: set[str] = set()
    waiting: list[str] = []

    def visit(name: str) -> Iterator[FileDescriptorProto]:
        if name in done:
            return
        if name in waiting:
            raise SchemaError(f"{name!r} imports itself: {' -> '.join([*waiting, name])}")
        file = files.get(name)
        if file is None:
            raise SchemaError(f"{waiting[-1]!r} imports {name!r}, which is not among the schema's references")
        waiting.append(name)
        for dependency in file.dependency:
            yield from visit(dependency)
        waiting.pop()
        done.add(name)
        yield file

    yield from visit(own)
