"""Tools that a newcomer's machine may lack: a missing one skips its tests there and fails them where `CI` is set."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest


def java() -> str:
    return tool("java", "a Java 17 runtime, e.g. the package openjdk-17-jdk-headless")


def java_compiler() -> str:
    return tool("javac", "a Java 17 compiler, e.g. the package openjdk-17-jdk-headless")


def maven() -> str:
    return tool("mvn", "Apache Maven, e.g. the package maven")


def kcat() -> str:
    return tool("kcat", "the package kcat")


@cache
def _path(name: str) -> str | None:
    return shutil.which(name)


def tool(name: str, how_to_get: str) -> str:
    """The tool's path; without the tool the running test ends here."""
    return _path(name) or missing(f"{name} is not on PATH (install {how_to_get})")


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI must run every client", pytrace=False)
    pytest.skip(reason)


def cache_folder() -> Path:
    """Where builds stay between runs, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-mesh" / "tests"
