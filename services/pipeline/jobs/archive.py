"""The job `archive`: topics to Parquet, by day.

    FOLDER/day=2026-11-21/batch=17/part-….parquet     columns of kafka_source.SCHEMA
    FOLDER/_checkpoint/                               where the job stands; belongs to the data, moves with it

Exactly once, for any reader of Parquet. Spark writes down the span of a batch before it reads it, and after a crash
runs that batch again, with the same records. Each batch has folders of its own, and writing it again replaces them.
(Spark's own file sink is exactly-once only for readers that know its log; others see the files of attempts that were
killed.) Batch numbers count from the checkpoint, so data without their checkpoint are refused: batch 0 would replace
batch 0.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import structlog
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from services.pipeline.kafka_source import KafkaSource

STOP_POLL_S = 0.5  # how soon an order to stop is seen
DAY_FOLDERS = "day=*"
CHECKPOINT = "_checkpoint"  # readers pass by what begins with an underscore

log = structlog.get_logger(__name__)


class ArchiveError(Exception):
    """The archive can't be written there."""


@dataclass(slots=True)
class Written:
    """What a run has added."""

    batches: int = 0
    records: int = 0
    seconds: float = 0.0
    is_cut_short: bool = False
    """It was told to stop before it had archived what was there."""


def by_day(records: DataFrame, batch: int) -> DataFrame:
    """Records with the folders that they go to, in the order of their offsets."""
    placed = records.withColumns({"day": f.to_date("timestamp"), "batch": f.lit(batch)})
    return placed.sortWithinPartitions("day", "batch", "topic", "partition", "offset")


def run(
    session: SparkSession,
    source: KafkaSource,
    folder: str,
    *,
    every: timedelta | None = None,
    stopping: threading.Event | None = None,
) -> Written:
    """Archives what there is, and returns; with `every`, looks again and again until `stopping`."""
    folder = folder.rstrip("/")
    _check_folder(session, folder)
    stopping = stopping or threading.Event()
    written = Written()
    started = time.monotonic()

    def write(records: DataFrame, batch: int) -> None:
        begun = time.monotonic()
        observation = Observation()
        counted = records.observe(observation, f.count(f.lit(1)).alias("records"))
        (
            by_day(counted, batch)
            .write.partitionBy("day", "batch")
            .mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .parquet(folder)
        )
        count = observation.get["records"]
        written.batches += 1
        written.records += count
        log.info("batch written", batch=batch, records=count, seconds=round(time.monotonic() - begun, 2))

    trigger = {"availableNow": True} if every is None else {"processingTime": f"{every.total_seconds()} seconds"}
    query = (
        source.stream(session)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{folder}/{CHECKPOINT}")
        .trigger(**trigger)
        .start()
    )
    try:
        while not (ended := query.awaitTermination(STOP_POLL_S)) and not stopping.is_set():
            pass
        written.is_cut_short = every is None and not ended
    finally:
        query.stop()
    written.seconds = time.monotonic() - started
    return written


def _check_folder(session: SparkSession, folder: str) -> None:
    """ArchiveError when there are data but no checkpoint."""
    jvm = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    files = path.getFileSystem(session._jsc.hadoopConfiguration())
    has_data = len(files.globStatus(jvm.org.apache.hadoop.fs.Path(path, DAY_FOLDERS)) or ()) > 0
    if has_data and not files.exists(jvm.org.apache.hadoop.fs.Path(path, CHECKPOINT)):
        raise ArchiveError(
            f"{folder} holds days but no {CHECKPOINT}: what is archived there is unknown; "
            f"bring {CHECKPOINT} back, or archive into a new folder"
        )
