"""Builds the stand-in images that `compose.override.yaml` names, where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.jars import fetch_missing, jar_folder, locked_jars

HERE = Path(__file__).parent / "images"
BUILD_TIMEOUT_S = 600.0
SUITE = "trixie"


def build_missing(environment: dict[str, str]) -> None:
    """Bring the base and the three stand-ins up to date; what is cached costs a second."""
    if not _exists("local/debian:trixie", environment):
        _run([str(HERE / "base.sh"), SUITE, "local/debian:trixie"], environment)
    for name, tag in (("python", "local/python:3.13"), ("postgres", "local/postgres:17")):
        _build(name, tag, environment)
    with _kafka_jars() as jars:
        _build("kafka", "local/kafka:4.4.0", environment, "--build-context", f"jars={jars}")


def _exists(image: str, environment: dict[str, str]) -> bool:
    asked = subprocess.run(
        ["docker", "image", "inspect", image], env=environment, capture_output=True, timeout=30, check=False
    )
    return asked.returncode == 0


def _build(name: str, tag: str, environment: dict[str, str], *options: str) -> None:
    _run(["docker", "build", "--network", "host", "--tag", tag, *options, str(HERE / name)], environment)


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BUILD_TIMEOUT_S,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}:\n{done.stdout[-4000:]}")


@contextmanager
def _kafka_jars() -> Iterator[Path]:
    """A folder with the jars of the lock and no other."""
    for _ in fetch_missing():
        pass
    with tempfile.TemporaryDirectory(prefix="mesh-jars-") as folder:
        for jar in locked_jars():
            source, target = jar_folder() / jar.filename, Path(folder) / jar.filename
            try:
                os.link(source, target)
            except OSError:  # another file system
                shutil.copyfile(source, target)
        yield Path(folder)
