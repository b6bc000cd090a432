"""Builds a Maven project once for each content and Kafka version, into the user's cache, and gives its class path.

Theory of operation: the folder's name carries a hash of the project's files, so a change makes a new folder and an
unchanged project never starts Maven again. Maven works in a private folder that is renamed into place when all is done:
an interrupted build leaves nothing that looks finished, and two test runs cannot spoil each other's build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.fixtures.toolchains import need

BUILD_TIMEOUT_SECONDS = 300.0


def class_path(project: Path, kafka_version: str) -> str:
    """Class path of the built project; builds it if this content was never built for this version."""
    need("java")
    built = _cache_folder() / f"{project.name}-{kafka_version}-{_content_hash(project)}"
    if not built.exists():
        _build(project, kafka_version, built)
    return f"{built / 'classes'}:{built / 'lib'}/*"


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kafka-mesh" / "tests"


def _content_hash(project: Path) -> str:
    content = hashlib.sha256()
    for file in (project / "pom.xml", *sorted(path for path in (project / "src").rglob("*") if path.is_file())):
        content.update(str(file.relative_to(project)).encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:12]


def _build(project: Path, kafka_version: str, built: Path) -> None:
    (_, mvn) = need("javac", "mvn")
    built.parent.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{built.name}-", dir=built.parent))
    try:
        command = [str(mvn), "--quiet", "--batch-mode", "--file", str(project / "pom.xml")]
        command += [f"-Dkafka.version={kafka_version}", f"-Doutput={working}", "process-classes"]
        # Offline first: it takes seconds less, and works on a train.
        offline = _run([*command, "--offline"])
        done = offline if offline.returncode == 0 else _run(command)
        if done.returncode != 0:
            output = (done.stdout + done.stderr)[-4000:]
            raise RuntimeError(f"Maven could not build {project} for Kafka {kafka_version}:\n{output}")
        working.rename(built)
    except OSError:
        if not built.exists():  # otherwise another run was faster: its build is as good
            raise
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS, check=False)
