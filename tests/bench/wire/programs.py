"""The three programs of the wire bench: compiled when it starts, once for each content, into the user's cache."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.clients import builds

SOURCES = Path(__file__).parent / "native"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")


class NoProgramsError(Exception):
    """They can't be had on this machine."""


@dataclass(frozen=True, slots=True)
class Programs:
    load: Path
    sink: Path
    relay: Path


def programs() -> Programs:
    """Raises NoProgramsError where there is no compiler, or no epoll."""
    if sys.platform != "linux":
        raise NoProgramsError("load, sink and relay of the wire bench are written for Linux")
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoProgramsError(f"load, sink and relay of the wire bench need a C compiler: {', '.join(COMPILERS)} or CC")

    def build(folder: Path) -> None:
        for source in SOURCES.glob("*.c"):
            builds.run([compiler, *FLAGS, "-o", folder / source.stem, source])

    try:
        made = builds.built("wire-bench", [SOURCES], build)
    except (OSError, RuntimeError) as error:  # no such compiler, or one that lacks what they need
        raise NoProgramsError(str(error)) from error
    return Programs(made / "load", made / "sink", made / "relay")
