"""What tests build from sources in this folder: once for each content, into the user's cache.

Theory of operation: a folder's name carries a hash of the files that it is made from, so a change makes a new folder
and unchanged files never start a compiler again. Work goes on in a private folder that is renamed into place when all
is done: an interrupted build leaves nothing that looks finished, and two test runs cannot spoil each other's build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

BUILD_TIMEOUT_SECONDS = 300.0


def built(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """The folder that `build` filled from these files (and folders of files), now or on an earlier run."""
    done = _cache_folder() / f"{name}-{_content_hash(sources)}"
    if done.exists():
        return done
    done.parent.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{done.name}-", dir=done.parent))
    try:
        build(working)
        working.rename(done)
    except OSError:
        if not done.exists():  # otherwise another run was faster: its build is as good
            raise
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return done


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = BUILD_TIMEOUT_SECONDS,
) -> None:
    """One step of a build; its output is the error's text when it fails."""
    step = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    if step.returncode != 0:
        raise RuntimeError(f"could not build: {' '.join(map(str, command))}\n{(step.stdout + step.stderr)[-4000:]}")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-mesh" / "tests"


def _content_hash(sources: Iterable[Path]) -> str:
    content = hashlib.sha256()
    for source in sources:
        files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
        for file in files:
            content.update(str(file.relative_to(source.parent)).encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:12]
