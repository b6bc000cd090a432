"""Many small files of a day become few large ones, sorted by topic, partition and offset.

Any reader of Parquet lists the folder and reads the listed files; no reader asks the pipeline first. So two promises
hold at each moment at which a reader may list the folder. They also hold if the compacting process is killed at that
moment, and resumes late or never:

No record is in the folder twice. The small files are deleted before the large files can be seen. A reader that has
listed the small files can't read them then: the reader gets an error and lists again. No reader ever gets both.

No record is lost. Before anything is deleted, all large files are ready beside the records, complete and counted. The
plan is written too, and says which files replace which batches. From then on the compaction can only go forward:
`settle` finishes it as the first step of each run.

Each step may be cut off anywhere, and is done again from its start:

1. The files are written to `staged`, which no reader lists. After a cut-off they are overwritten, or deleted by
   `settle`.
2. The records of the files and of the replaced batches are counted and compared. Then `plan.json` is written, in full
   or not at all.
3. The folders of the batches are deleted; of the last batch, the files.
4. The files are moved into the folder of the last of these batches, one by one. If some files are missing from
   `staged`, step 3 is done. It must not be repeated then, because that folder already holds large files.
5. `staged` and older plans of the day are deleted. The plan stays: catalogue.py reads it.

Between steps 3 and 5 a reader misses records of that day. The gap takes some milliseconds if the store moves files, or
the time of a copy if the store can't move files (s3a). Only an exchange of folders would prevent this gap, and no store
of Hadoop has such an operation. A reader that uses the plans misses nothing (catalogue.py).

Only batches that the checkpoint counts as done are compacted. Spark never writes these batches again, so Spark can't
replace the large files by one batch. A later batch with records of an old day stays beside the large files until
another compaction of the day is worth its cost.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

import structlog
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.pipeline.archives.layout import (
    COMPACTION,
    PLAN,
    STAGED,
    BatchFolder,
    Holding,
    Plan,
    latest_plans,
)
from services.pipeline.kafka.rows import SCHEMA
from services.pipeline.storage.hadoop import HadoopFolder
from services.pipeline.storage.layout import PARQUET

ORDER = ("topic", "generation", "partition", "offset")
ARCHIVED = f"{SCHEMA}, generation int"
"""Columns of an archive's files; files from before `generation` existed lack that column."""
ROW_GROUP_BYTES = 32 << 20  # the most that a reader holds in memory
WORTH_WHILE = 2  # a day is compacted if it has this many times the needed number of files
JOB_GROUP = "kafka-mesh-compaction"
STOP_POLL_S = 0.5

log = structlog.get_logger(__name__)


class CompactionError(Exception):
    """A day can't be compacted; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """Which days, and how large their files get."""

    after: timedelta = timedelta(hours=1)
    """Time after the end of a day at which the day counts as finished; it allows for late batches and slow clocks."""
    file_bytes: int = 256 << 20

    def is_finished(self, day: str, now: datetime) -> bool:
        return day < (now - self.after).date().isoformat()

    def files_for(self, total_bytes: int) -> int:
        return max(1, math.ceil(total_bytes / self.file_bytes))

    def is_worth_while(self, sizes: Sequence[int]) -> bool:
        """Whether a day has enough files for a compaction: a few late records are not worth a rewrite of the day."""
        return len(sizes) >= WORTH_WHILE * self.files_for(sum(sizes))


def sorted_into(records: DataFrame, files: int) -> DataFrame:
    """Sorts the records into `files` partitions, each one range of the whole order."""
    return records.repartitionByRange(files, *ORDER).sortWithinPartitions(*ORDER)


def holdings_of(written: DataFrame) -> DataFrame:
    """The content of each file, by partition."""
    return written.groupBy(f.col("_metadata.file_name").alias("file"), "topic", "generation", "partition").agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.count("offset").alias("records"),
        f.unix_millis(f.min("timestamp")).alias("earliest_ms"),
        f.unix_millis(f.max("timestamp")).alias("latest_ms"),
    )


def compact(
    session: SparkSession,
    files: HadoopFolder,
    rules: CompactionRules,
    *,
    now: datetime | None = None,
    stopping: threading.Event | None = None,
) -> int:
    """Compacts the finished days of the archive that are worth it, one by one; returns the number of days.

    `stopping` ends it after the current day.
    """
    settle(files)
    now = now or datetime.now(UTC)
    done = 0
    for day, batches in _finished_batches(files, rules, now).items():
        if stopping is not None and stopping.is_set():
            break
        sizes = [size for batch in batches for _path, size in files.sizes(f"{batch}/*{PARQUET}")]
        if rules.is_worth_while(sizes):
            count = rules.files_for(sum(sizes))
            carry_out(files, _stage(session, files, batches, count))
            done += 1
            log.info("day compacted", day=day, files_before=len(sizes), files=count, bytes_before=sum(sizes))
    return done


def _finished_batches(files: HadoopFolder, rules: CompactionRules, now: datetime) -> dict[str, list[BatchFolder]]:
    """By day, the batches that Spark has committed."""
    if (last := files.committed_batch()) is None:
        return {}
    days: dict[str, list[BatchFolder]] = {}
    for path in files.matching("day=*/batch=*"):
        batch = BatchFolder.of(path)
        if batch is not None and batch.batch <= last and rules.is_finished(batch.day, now):
            days.setdefault(batch.day, []).append(batch)
    return {day: sorted(batches) for day, batches in sorted(days.items())}


def _stage(session: SparkSession, files: HadoopFolder, batches: Sequence[BatchFolder], count: int) -> Plan:
    """Steps 1 and 2."""
    into = batches[-1]
    staged = f"{files.root}/{into.staged}"
    files.delete(into.compaction)
    listed = [f"{files.root}/{batch}" for batch in batches]
    small = session.read.schema(ARCHIVED).parquet(*listed).fillna(0, ["generation"])
    sorted_into(small, count).write.option("parquet.block.size", str(ROW_GROUP_BYTES)).parquet(staged)
    held: dict[str, list[Holding]] = {}
    for row in holdings_of(session.read.schema(ARCHIVED).parquet(staged)).sort("file", *ORDER[:3]).collect():
        held.setdefault(row["file"], []).append(Holding(**{each.name: row[each.name] for each in fields(Holding)}))
    before, now = small.count(), sum(each.records for rows in held.values() for each in rows)
    if before != now:
        raise CompactionError(f"{staged} has {now} records, the batches that it is made of have {before}")
    plan = Plan(into, tuple(batch.batch for batch in batches), {name: tuple(rows) for name, rows in held.items()})
    files.write(into.plan, plan.to_json())
    return plan


def carry_out(files: HadoopFolder, plan: Plan) -> None:
    """Steps 3 to 5."""
    into = plan.into
    staged = {path.rpartition("/")[2] for path in files.matching(f"{into.staged}/*{PARQUET}")}
    if staged.issuperset(plan.files):
        small = files.matching(f"{into}/*")  # not the folder: a late delete would take large files (ownership.py)
        for path in [*(str(batch) for batch in plan.replaced if batch != into), *small]:
            files.delete(path)
    files.make(str(into))
    for name in sorted(staged):
        files.move(f"{into.staged}/{name}", f"{into}/{name}")
    files.delete(into.staged)
    for path in files.matching(f"{COMPACTION}/day={into.day}/batch=*"):
        if BatchFolder.of(path) != into:
            files.delete(path)


def settle(files: HadoopFolder) -> None:
    """Carries out plans that were cut off, and deletes staged files without a plan."""
    plans = latest_plans(files.matching(f"{COMPACTION}/day=*/batch=*/{PLAN}"))
    for path in files.matching(f"{COMPACTION}/day=*/batch=*"):
        batch = BatchFolder.of(path)
        if batch is None or plans.get(batch.day) != batch:
            files.delete(path)
    for path in files.matching(f"{COMPACTION}/day=*/batch=*/{STAGED}"):
        batch = BatchFolder.of(path)
        if batch is not None:
            log.info("compaction goes on where it was cut off", day=batch.day)
            carry_out(files, Plan.from_json(files.read(batch.plan)))


class BackgroundCompaction:
    """Compacts finished days beside the query that archives, one day at a time, at a set interval.

    A context manager; its exit cancels a running compaction, which a later run repeats from its start."""

    def __init__(self, session: SparkSession, files: HadoopFolder, rules: CompactionRules, every: timedelta) -> None:
        self._session = session
        self._files = files
        self._rules = rules
        self._every_s = every.total_seconds()
        self._due = time.monotonic()
        self._stopping = threading.Event()
        self._thread: InheritableThread | None = None
        self.days = 0
        """Number of days that were compacted."""

    def __enter__(self) -> BackgroundCompaction:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        while self._thread is not None and self._thread.is_alive():
            self._session.sparkContext.cancelJobGroup(JOB_GROUP)
            self._thread.join(STOP_POLL_S)

    def turn(self) -> None:
        """Starts a compaction if one is due, unless the last compaction still runs."""
        if time.monotonic() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = time.monotonic() + self._every_s
        self._thread = InheritableThread(target=self._compact, name="compaction", session=self._session)
        self._thread.start()

    def _compact(self) -> None:
        self._session.sparkContext.setJobGroup(JOB_GROUP, "compaction", interruptOnCancel=True)
        try:
            self.days += compact(self._session, self._files, self._rules, stopping=self._stopping)
        except Exception:
            # archiving is more urgent: retention does not wait
            if not self._stopping.is_set():
                log.exception("compaction failed; it is tried again", in_s=self._every_s)
