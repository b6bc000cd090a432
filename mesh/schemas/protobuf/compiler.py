"""Runs the Protobuf compiler of grpcio-tools: `.proto` text in, descriptors out.

The text comes from strangers, so the compiler gets a process of its own, a folder of its own, and little time. Outside
that folder, the compiler opens only its own well-known types: it reads an import as a path below its roots, and refuses
`..` and the like in an import.
"""

import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from mesh.schemas.schema import SchemaError

MAX_SECONDS = 20.0
"""A schema takes about 0.1 s; a busy machine may need far longer."""
MAX_AT_ONCE = 2
"""Compilers that run at the same time; others wait their turn."""
MAX_FILES = 500
MAX_TEXT_BYTES = 4 * 1024 * 1024
"""The size of one schema with all its imports, at most."""
MAX_MESSAGE_CHARACTERS = 1000
"""The length of the compiler's message in an error, at most."""

_SEGMENT = r"[A-Za-z0-9_@+][A-Za-z0-9_@+.\-]{0,199}"
_PATH = re.compile(rf"(?!@){_SEGMENT}(/{_SEGMENT}){{0,30}}")
"""A path must not begin with `@`: the compiler reads an argument `@file` as a file of more arguments, such as the place
to write to."""
_LOG_LINE = re.compile(r"^(WARNING: All log messages|[IWEF]\d{4} ).*\n?", re.MULTILINE)

_running = threading.BoundedSemaphore(MAX_AT_ONCE)


def is_import_path(name: str) -> bool:
    """Whether a file may have this name: its segments neither hide it nor lead upwards, and it is no option."""
    return _PATH.fullmatch(name) is not None


def compiled(
    texts: Mapping[str, str], wanted: list[str], libraries: Sequence[FileDescriptorSet]
) -> list[FileDescriptorProto]:
    """Descriptors of the wanted files and of all their imports, from texts by import path or from the libraries.

    SchemaError with the compiler's message. Blocks, so never call it on the event loop.
    """
    _check_bounds(texts)
    if not _running.acquire(timeout=MAX_SECONDS):
        raise SchemaError(f"the Protobuf compiler is busy: no turn within {MAX_SECONDS:.0f} s; try again later")
    try:
        with tempfile.TemporaryDirectory(prefix="kafka-mesh-protobuf-") as folder:
            return _compiled_in(Path(folder), texts, wanted, libraries)
    except OSError as error:
        raise SchemaError(f"the Protobuf compiler cannot be run: {error}") from None
    finally:
        _running.release()


def _check_bounds(texts: Mapping[str, str]) -> None:
    for name in texts:
        if not is_import_path(name):
            raise SchemaError(f"a schema is referred to as {name[:200]!r}, which is no path of a .proto file")
    if len(texts) > MAX_FILES:
        raise SchemaError(f"the schema has {len(texts)} files with its references; at most {MAX_FILES} are compiled")
    size = sum(len(text) for text in texts.values())
    if size > MAX_TEXT_BYTES:
        raise SchemaError(f"the schema with its references has {size} characters; at most {MAX_TEXT_BYTES}")


def _compiled_in(
    folder: Path, texts: Mapping[str, str], wanted: list[str], libraries: Sequence[FileDescriptorSet]
) -> list[FileDescriptorProto]:
    sources = folder / "sources"
    for name, text in texts.items():
        file = sources / name
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.write_bytes(text.encode())
        except UnicodeEncodeError as error:
            raise SchemaError(f"{name} is not text: {error.reason} at {error.start}") from None
    for number, library in enumerate(libraries):
        (folder / f"library{number}").write_bytes(library.SerializeToString())
    found_in = ":".join(f"../library{number}" for number in range(len(libraries)))
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc"]
    command += ["-I.", f"--descriptor_set_in={found_in}", "--include_imports", "--descriptor_set_out=../compiled"]
    try:
        ended = subprocess.run(
            [*command, *wanted],
            cwd=sources,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SchemaError(f"the Protobuf compiler did not end within {MAX_SECONDS:.0f} s") from None
    if ended.returncode != 0:
        raise SchemaError(f"no valid .proto file: {_words(ended.stderr) or f'exit status {ended.returncode}'}")
    try:
        return list(FileDescriptorSet.FromString((folder / "compiled").read_bytes()).file)
    except DecodeError as error:
        raise SchemaError(f"the Protobuf compiler's answer cannot be read: {error}") from None


def _words(said: bytes) -> str:
    """The compiler's errors on one line, without its log lines and warnings."""
    lines = _LOG_LINE.sub("", said.decode(errors="replace")).splitlines()
    complaints = [line.strip() for line in lines if line.strip() and " warning: " not in line]
    return "; ".join(complaints)[:MAX_MESSAGE_CHARACTERS]
