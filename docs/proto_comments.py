"""The comments of the contract in proto/, by the full names of what they describe."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from hatch_build import googleapis

PROTO = Path(__file__).parent.parent / "proto"


@cache
def comments() -> dict[str, str]:
    """The comment, in one line, of all that has one: "mesh.v1.RuleSpec.rule_id", "mesh.v1.RuleService.SetRule"."""
    return {name: text for file in _files() if file.package == "mesh.v1" for name, text in _of(file)}


def _files() -> list[FileDescriptorProto]:
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "contract.binpb"
        well_known = resources.files("grpc_tools") / "_proto"
        sources = [str(each) for each in sorted((PROTO / "mesh" / "v1").glob("*.proto"))]
        options = [
            f"--proto_path={PROTO}",
            f"--proto_path={well_known}",
            f"--proto_path={googleapis()}",
            "--include_source_info",
        ]
        if protoc.main(["protoc", *options, f"--descriptor_set_out={compiled}", *sources]) != 0:
            raise ValueError(f"protoc refuses the files in {PROTO}; its reasons stand above")
        return list(FileDescriptorSet.FromString(compiled.read_bytes()).file)


def _of(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    for location in file.source_code_info.location:
        text = " ".join(location.leading_comments.split())
        if text and len(location.path) % 2 == 0 and location.path:
            yield _name(file, location.path), text


def _name(file: FileDescriptorProto, path: Sequence[int]) -> str:
    """The full name at a path of descriptor.proto: numbers of fields, each with an index if the field is repeated."""
    names, described = [file.package], file
    for number, index in zip(path[::2], path[1::2], strict=False):
        described = getattr(described, described.DESCRIPTOR.fields_by_number[number].name)[index]
        names.append(described.name)
    return ".".join(names)
