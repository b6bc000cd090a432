"""The job `archive`: topics to Parquet, by day.

    FOLDER/day=2026-11-21/batch=17/part-….parquet     columns of kafka_source.SCHEMA
    FOLDER/_checkpoint/                               where the job stands; belongs to the data, moves with it
    FOLDER/_compaction/                               how small files of finished days became large ones: also

Exactly once, for any reader of Parquet. Spark writes down the span of a batch before it reads it, and after a crash
runs that batch again, with the same records. Each batch has folders of its own, and writing it again replaces them.
(Spark's own file sink is exactly-once only for readers that know its log; others see the files of attempts that were
killed.) Batch numbers count from the checkpoint, so data without their checkpoint are refused: batch 0 would replace
batch 0. Days that are finished are compacted, which keeps that promise: archives/compaction.py says how.

Who accepts that Kafka no longer holds some records keeps those that were archived: a batch that was cut off after its
write is not replaced then, what it lacks is added to it.
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta

import structlog
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from services.pipeline import job_reports
from services.pipeline.archives.background import BackgroundCompaction
from services.pipeline.archives.compaction import ROW_GROUP_BYTES, CompactionRules, compact, settle
from services.pipeline.archives.hadoop import HadoopFolder
from services.pipeline.archives.layout import CHECKPOINT
from services.pipeline.kafka_source import KafkaSource

STOP_POLL_S = 0.5  # how soon an order to stop is seen
DAY_FOLDERS = "day=*"
PLACE = ("cluster", "topic", "partition", "offset")
"""Of a record; archives of one cluster do not name it."""
JOB = "archive"
SIGN_OF_LIFE_S = 10.0
"""How often serve is told how much was archived: without any word it takes the job for one that hangs."""
COMPACT_EVERY = timedelta(hours=1)  # a continuous job looks for days that have ended

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
    days_compacted: int = 0


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
    rules: CompactionRules | None = None,
    compact_every: timedelta = COMPACT_EVERY,
) -> Written:
    """Archives what there is, and returns; with `every`, looks again and again until `stopping`.

    With `rules`, finished days are compacted: at the end, or meanwhile.
    """
    folder = folder.rstrip("/")
    files = HadoopFolder(session, folder)
    _check_folder(files)
    settle(files)
    stopping = stopping or threading.Event()
    written = Written()
    started = time.monotonic()

    def write(records: DataFrame, batch: int) -> None:
        begun = time.monotonic()
        standing = files.matching(f"{DAY_FOLDERS}/batch={batch}") if source.accept_loss else []
        if standing:
            records = _without(records, session.read.parquet(*(f"{folder}/{each}" for each in standing)))
        observation = Observation()
        counted = records.observe(observation, f.count(f.lit(1)).alias("records"))
        (
            by_day(counted, batch)
            .write.partitionBy("day", "batch")
            .mode("append" if standing else "overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("parquet.block.size", str(ROW_GROUP_BYTES))
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
    told = _Told()
    beside = BackgroundCompaction(session, folder, rules, compact_every) if rules and every else None
    try:
        with beside or nullcontext():
            while not (ended := query.awaitTermination(STOP_POLL_S)) and not stopping.is_set():
                if beside:
                    beside.turn()
                told.turn(written.records)
        written.is_cut_short = every is None and not ended
    finally:
        query.stop()
    if beside:
        written.days_compacted = beside.days
    elif rules and not written.is_cut_short:
        written.days_compacted = compact(session, folder, rules, stopping=stopping)
    written.seconds = time.monotonic() - started
    return written


class _Told:
    """What serve has heard of a run."""

    def __init__(self) -> None:
        self._records = 0
        self._at = float("-inf")

    def turn(self, records: int) -> None:
        """Tells it, when it is time."""
        if time.monotonic() - self._at < SIGN_OF_LIFE_S:
            return
        self._at = time.monotonic()
        job_reports.tell(job_reports.JobReport(JOB, records=records - self._records))
        self._records = records


def _without(records: DataFrame, archived: DataFrame) -> DataFrame:
    """Those that are not among the archived."""
    place = [name for name in PLACE if name in records.columns]
    return records.join(archived.select(place), place, "left_anti").select(records.columns)


def _check_folder(files: HadoopFolder) -> None:
    """ArchiveError when there are data but no checkpoint."""
    if files.matching(DAY_FOLDERS) and not files.exists(CHECKPOINT):
        raise ArchiveError(
            f"{files.root} holds days but no {CHECKPOINT}: what is archived there is unknown; "
            f"bring {CHECKPOINT} back, or archive into a new folder"
        )
