"""The build, and `make stubs`, make two things beside the sources: the stubs of the contracts in proto/,
below mesh/rpc, and a compiled copy of those modules of the gateway that each record passes.

protoc derives import paths from file paths, so its output says `from mesh.v1 import ...`; the modules live in
`mesh.rpc.v1`, and the imports are rewritten to say so. The protobuf package name (`mesh.v1`) stays what it is.
Each folder is written whole and swapped in file by file, so that a process that imports it meanwhile sees old or new.

The modules run as they are, too: where there is no C compiler, one line says so, and the build goes on. A copy has a
name made of its sources (services/gateway/copies.py), so it is made once, and again when they change.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
import tempfile
from contextlib import chdir, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO_ROOT = Path("proto")
STUBS = {Path("mesh/v1"): Path("mesh/rpc/v1"), Path("io/prometheus/client"): Path("mesh/rpc/prometheus")}
"""Packages below proto/, ours and Prometheus' (its file is as it comes), and where their stubs lie."""
COPIES = Path("services/gateway/copies.py")
PACKAGE_DOC = '"""Stubs generated from proto/ when the package is built; do not edit, do not commit."""\n'

_IMPORT_FROM = re.compile(r"\bfrom mesh\.v1 import\b")
_MODULE_NAME = re.compile(r"\bmesh\.v1\.(?=\w+_pb2)")


class MadeBeside(BuildHookInterface[Any]):
    """The hook that hatchling calls; `[tool.hatch.build.hooks.custom]` names this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        generate(root)
        build_data["artifacts"] += [f"/{stubs.as_posix()}/" for stubs in STUBS.values()]
        if self.target_name != "wheel":
            return
        copy = compile_modules(root)
        if copy is not None:
            build_data["artifacts"].append(f"/{copy.relative_to(root).as_posix()}/")
            build_data["pure_python"], build_data["infer_tag"] = False, True


def generate(root: Path) -> None:
    """Bring the stubs below `root/mesh/rpc` up to date with `root/proto`."""
    for package, stubs in STUBS.items():
        _generate(root, package, root / stubs)


def _generate(root: Path, package: Path, target: Path) -> None:
    protos = sorted((root / PROTO_ROOT / package).glob("*.proto"))
    if not protos:
        raise SystemExit(f"no .proto files under {root / PROTO_ROOT / package}")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stubs-") as folder:
        _run_protoc(root / PROTO_ROOT, protos, Path(folder))
        produced = {path.name: _rewritten(path) for path in (Path(folder) / package).iterdir()}
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
        f"--proto_path={googleapis()}",
        f"--plugin=protoc-gen-mypy={_plugin('protoc-gen-mypy')}",
        f"--plugin=protoc-gen-mypy_grpc={_plugin('protoc-gen-mypy_grpc')}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *map(str, protos),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc refused a file of proto/: its messages are above")


def googleapis() -> Path:
    """The folder that holds google/api/*.proto: googleapis-common-protos ships them beside its modules."""
    spec = find_spec("google.api")
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


# --- compiled modules ------------------------------------------------------------------------------------------------


def compile_modules(root: Path) -> Path | None:
    """The folder of the copy that is compiled from the sources as they are; None where that can't be done."""
    copies = runpy.run_path(str(root / COPIES))
    copy: Path = copies["COPIES"] / copies["name_of_copy"]()
    if copy.is_dir():
        return copy
    gateway: Path = copies["GATEWAY"]
    with tempfile.TemporaryDirectory(prefix="modules-") as folder:
        part = Path(folder)
        for source in gateway.rglob("*.pxd"):
            for path in (source, source.with_suffix(".py")):
                target = part / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        for package in {parent for path in part.rglob("*.pxd") for parent in path.parents if part in parent.parents}:
            (package / "__init__.py").touch()
        modules = [f"{copies['PACKAGE']}.{module}" for module in copies["MODULES"]]
        libraries = _compiled(part, modules, copies["DIRECTIVES"], copies["OF_WALKS"])
        if libraries is None:
            return None
        _put_in_place(libraries, copy)
    return copy


def _compiled(
    root: Path, modules: list[str], directives: dict[str, Any], of_walks: dict[str, Any]
) -> dict[str, Path] | None:
    """The libraries made of these modules below `root`, by their names; None without a compiler."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError, CCompilerError

    with chdir(root):  # where Cython looks for the packages
        sources = []
        for module in modules:
            extension = Extension(module, [module.replace(".", "/") + ".py"], extra_compile_args=["-O2", "-g0"])
            unchecked = of_walks if ".walks." in module else {}
            sources += cythonize([extension], compiler_directives={**directives, **unchecked}, quiet=True)
        command = build_ext(Distribution({"ext_modules": sources}))
        command.build_lib = command.build_temp = str(root)
        command.parallel = os.cpu_count() or 1
        command.ensure_finalized()
        try:
            command.run()
        except (BaseError, CCompilerError) as error:
            print(f"modules of the gateway are not compiled, and run as Python, slower: {error}", file=sys.stderr)
            return None
    return {module: Path(command.get_ext_fullpath(module)) for module in modules}


def _put_in_place(libraries: dict[str, Path], copy: Path) -> None:
    """The copy appears whole, or not at all; older ones for this Python leave."""
    copy.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=copy.parent) as part:
        whole = Path(part) / copy.name
        whole.mkdir()
        for module, library in libraries.items():
            shutil.copy(library, whole / f"{module}{library.suffix}")
        with suppress(OSError):  # somebody else has just made it
            whole.rename(copy)
    for old in copy.parent.glob(f"{sys.implementation.cache_tag.replace('-', '_')}_*"):
        if old.name != copy.name:
            shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent)
    compile_modules(Path(__file__).resolve().parent)
