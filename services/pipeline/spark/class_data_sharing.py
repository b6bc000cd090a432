"""The archive of Spark's parsed and verified classes (class data sharing), which halves the start of a session.

The archive is in the environment of pyspark, and fits one Java and one pyspark only. Java ignores an archive that does
not fit. `kafka-mesh pipeline prepare` and `make env PIPELINE=1` make the archive. Images have none:
`docs/how-to/pipeline-sizing.md` says why. Without an archive, jobs work the same, but start slower.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(sys.prefix) / "share" / "kafka-mesh"
QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"  # Java is not to log that an archive does not fit
JVM_EXIT_S = 300.0  # the JVM writes the archive when it ends


def archive_of(java: Path) -> Path:
    """The path of the archive for this Java and this pyspark; the file may not exist yet."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None  # the caller needs pyspark anyway
    files = [java.resolve(), Path(spec.origin).parent / "jars"]
    told = "\n".join(f"{file} {file.stat().st_mtime_ns}" for file in files)
    return FOLDER / f"spark-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa"


def options_with(archive: Path) -> str:
    """The JVM's options for a start with the archive, if there is one."""
    return f"-XX:SharedArchiveFile={archive} {QUIET}" if archive.exists() else ""


def options_to_make(archive: Path) -> str:
    """The JVM's options that make it write the archive when it ends."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    return f"-XX:ArchiveClassesAtExit={_unfinished(archive)} {QUIET}"


def finish(session: SparkSession, archive: Path) -> None:
    """Uses Spark briefly, like a job, and ends its JVM."""
    records = session.range(1_000).selectExpr("id % 7 as day", "cast(id as string) as text")
    records.groupBy("day").count().mapInArrow(lambda batches: batches, "day long, count long").collect()
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its stdin is closed
    gateway.proc.wait(JVM_EXIT_S)
    _unfinished(archive).replace(archive)


def _unfinished(archive: Path) -> Path:
    return archive.with_suffix(f".{os.getpid()}")
