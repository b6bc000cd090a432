"""Generates the gRPC stubs from proto/mesh/v1 into mesh/rpc/v1, when the package is built and by `make stubs`.

protoc derives import paths from file paths, so its output says `from mesh.v1 import ...`; the modules live in
`mesh.rpc.v1`, and the imports are rewritten to say so. The protobuf package name (`mesh.v1`) stays what it is.
The folder is written whole and swapped in file by file, so that a process that imports it meanwhile sees old or new.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO_ROOT = Path("proto")
PROTO_PACKAGE = Path("mesh/v1")
STUBS = Path("mesh/rpc/v1")
PACKAGE_DOC = '"""Stubs generated from proto/mesh/v1 when the package is built; do not edit, do not commit."""\n'

_IMPORT_FROM = re.compile(r"\bfrom mesh\.v1 import\b")
_MODULE_NAME = re.compile(r"\bmesh\.v1\.(?=\w+_pb2)")


class StubsHook(BuildHookInterface[Any]):
    """The hook that hatchling calls; `[tool.hatch.build.hooks.custom]` names this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate(Path(self.root))
        build_data["artifacts"].append(f"/{STUBS.as_posix()}/")


def generate(root: Path) -> None:
    """Bring `root/mesh/rpc/v1` up to date with `root/proto/mesh/v1`."""
    protos = sorted((root / PROTO_ROOT / PROTO_PACKAGE).glob("*.proto"))
    if not protos:
        raise SystemExit(f"no .proto files under {root / PROTO_ROOT / PROTO_PACKAGE}")
    target = root / STUBS
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stubs-") as folder:
        _run_protoc(root / PROTO_ROOT, protos, Path(folder))
        produced = {path.name: _rewritten(path) for path in (Path(folder) / PROTO_PACKAGE).iterdir()}
    produced["__init__.py"] = PACKAGE_DOC
    for stale in target.glob("*.py*"):
        if stale.name not in produced:
            stale.unlink()
    for name, text in produced.items():
        _write_if_changed(target / name, text)


def _run_protoc(include: Path, protos: list[Path], out: Path) -> None:
    from grpc_tools import protoc

    arguments = [
        "protoc",
        f"--proto_path={include}",
        f"--proto_path={Path(protoc.__file__).parent / '_proto'}",
        f"--proto_path={_googleapis()}",
        f"--plugin=protoc-gen-mypy={_plugin('protoc-gen-mypy')}",
        f"--plugin=protoc-gen-mypy_grpc={_plugin('protoc-gen-mypy_grpc')}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *map(str, protos),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc refused proto/mesh/v1: its messages are above")


def _googleapis() -> Path:
    """Where google/rpc/*.proto lie: googleapis-common-protos ships them beside its modules."""
    spec = find_spec("google.rpc")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("googleapis-common-protos is not installed: install locks/build.txt first")
    return Path(next(iter(spec.submodule_search_locations))).parent.parent


def _plugin(name: str) -> Path:
    """protoc looks plugins up on PATH, where an environment that is not activated (or a build's own) is not."""
    suffix = ".exe" if os.name == "nt" else ""
    folders = [Path(sys.executable).parent, *map(Path, os.get_exec_path())]
    candidates = [folder / f"{name}{suffix}" for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise SystemExit(f"{name} is not installed: install locks/build.txt first")


def _rewritten(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    text = _IMPORT_FROM.sub("from mesh.rpc.v1 import", text)
    return _MODULE_NAME.sub("mesh.rpc.v1.", text)


def _write_if_changed(path: Path, text: str) -> None:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent)
