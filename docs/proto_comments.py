"""The comments of the contract in proto/, by the full names of what they describe."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

PROTO = Path(__file__).parent.parent / "proto"


@cache
def comments() -> dict[str, str]:
    """Each message and field that has a comment: "mesh.v1.RuleSpec.rule_id" -> its comment in one line."""
    return {name: text for file in _files() if file.package == "mesh.v1" for name, text in _of(file)}


def _files() -> list[FileDescriptorProto]:
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "contract.binpb"
        well_known = resources.files("grpc_tools") / "_proto"
        sources = [str(each) for each in sorted((PROTO / "mesh" / "v1").glob("*.proto"))]
        options = [f"--proto_path={PROTO}", f"--proto_path={well_known}", "--include_source_info"]
        if protoc.main(["protoc", *options, f"--descriptor_set_out={compiled}", *sources]) != 0:
            raise ValueError(f"protoc refuses the files in {PROTO}; its reasons stand above")
        return list(FileDescriptorSet.FromString(compiled.read_bytes()).file)


def _of(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    # the paths of comments have field numbers: 4 is message_type of a file, 2 is field of a message
    for location in file.source_code_info.location:
        text = " ".join(location.leading_comments.split())
        match list(location.path):
            case [4, message] if text:
                yield _name(file, file.message_type[message]), text
            case [4, message, 2, field] if text:
                holder = file.message_type[message]
                yield f"{_name(file, holder)}.{holder.field[field].name}", text


def _name(file: FileDescriptorProto, message: DescriptorProto) -> str:
    return f"{file.package}.{message.name}"
