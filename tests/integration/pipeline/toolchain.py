"""What tests of Spark need: the extra, which most environments lack, and a Java."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec

import psutil
import pytest

from services.pipeline.spark.session import SessionError, check_java
from tests.fixtures.toolchains import do_without

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for the seconds that a test lasts
QUICK_SPARK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""For few records: no Java is generated and compiled for each plan, no task for each part of next to nothing, no
process of the system's for each question about a checkpoint's file, none for the rights of a file of checksums.
"""


def need_spark() -> None:
    """Skips where the extra is not installed, in CI too: CI decides by what it installs. Java is there in CI."""
    if find_spec("pyspark") is None:
        pytest.skip("the extra `pipeline` is not installed (make env PIPELINE=1)")
    try:
        check_java()
    except SessionError as error:
        do_without(str(error))


def sparks_python() -> list[psutil.Process]:
    """What Spark has started here to plan and to read."""
    found = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if (
                each.status() != psutil.STATUS_ZOMBIE
                and "pyspark" in " ".join(each.cmdline())
                and "java" not in each.name()
            ):
                found.append(each)
    return found
