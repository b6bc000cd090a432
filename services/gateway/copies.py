"""The compiled copy of the modules that each record passes: a gateway takes it for these very sources, or none.

The build compiles the copy, and its name has the version of Python and a digest of the sources. So a copy of other
sources is never taken. The build runs this file by itself, before anything else of the mesh can be imported.
"""

import hashlib
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

GATEWAY: Final = Path(__file__).parent
COPIES: Final = GATEWAY / "compiled"
PACKAGE: Final = "services.gateway"

WALKS: Final = ("readers", "headers", "produce", "produce_response", "fetch_request", "fetch_response")
"""All walks but `octets`."""
IN_C: Final = ("clock", "wire.scanner.walks.octets")
"""Modules whose functions stand in the `.pxd` file, in C."""
MODULES: Final = (
    "counting",
    "frame_stream",
    *(f"wire.scanner.walks.{walk}" for walk in WALKS),
    "wire.scanner.fetch_join",
    "requests.traffic.tally",
    "requests.records.produce_routes",
    "requests.records.trace_contexts",
    "requests.records.fetch_routes",
    "requests.records.fetch_sessions",
    "requests.records.broker_fetches",
    "requests.records.fetch_writing",
    "requests.records.log_ends",
    "upstream.deadlines",
    "upstream.connection",
    "upstream.seats",
    "upstream.left_behind",
    "quotas.accounts",
    "downstream.toll",
    "downstream.turns",
    "downstream.following",
    "downstream.in_flight",
    "downstream.forwarding",
    "downstream.fetch_questions",
    "downstream.fetch_in_flight",
    "downstream.fetch_passing",
    "downstream.waiting_room",
    "downstream.fetch_placing",
    "downstream.fetch_forwarding",
    "downstream.request_tracing",
    "downstream.client",
)
"""The modules that are compiled, below the gateway's package."""

DIRECTIVES: Final = {
    "language_level": 3,
    "annotation_typing": False,  # an `int` of Python's is what it says in the `.pxd`
}
"""The directives for Cython ..."""
OF_WALKS: Final = {"boundscheck": False, "wraparound": False, "initializedcheck": False}
"""... and those for walks, which compare with their `end` themselves."""


def source_of(module: str) -> Path:
    return GATEWAY.joinpath(*module.split(".")).with_suffix(".py")


def name_of_copy() -> str:
    digest = hashlib.sha256(repr(sorted({**DIRECTIVES, **OF_WALKS}.items())).encode())
    for module in (*MODULES, *IN_C):
        source = source_of(module)
        for path in (source, source.with_suffix(".pxd")):
            digest.update(b"\0".join((path.name.encode(), path.read_bytes(), b"")))
    return f"{sys.implementation.cache_tag}_{digest.hexdigest()[:16]}".replace("-", "_")


class Copy(MetaPathFinder):
    """Finds the compiled modules."""

    def __init__(self, folder: Path) -> None:
        self._libraries = {library.name.rpartition(".")[0]: library for library in folder.iterdir()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        library = self._libraries.get(fullname)
        return None if library is None else spec_from_file_location(fullname, library)


def taken() -> str | None:
    """Has the copy imported in the place of its sources. Returns why not, if the sources run."""
    folder = COPIES / name_of_copy()
    if not folder.is_dir():
        has_others = COPIES.is_dir() and any(COPIES.iterdir())
        return "there are copies of other sources alone" if has_others else "there is no compiled copy"
    copy = Copy(folder)
    sys.meta_path.insert(0, copy)
    try:
        import_module(f"{PACKAGE}.{MODULES[0]}")
    except ImportError as error:
        sys.meta_path.remove(copy)
        return f"the compiled copy can't be loaded: {error}"
    return None
