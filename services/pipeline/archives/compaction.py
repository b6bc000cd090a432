"""Many small files of a day become few large ones, sorted by topic, partition and offset.

Any reader of Parquet lists the folder and reads what it has listed; none asks us first. So what is promised to it must
hold for each moment at which it may look, also when whoever compacts is killed there and comes back late, or never:

A record never stands there twice. What was small is deleted before what is large can be seen. A reader that has listed
small files can't read them any more then; it is told so, and lists again. It never gets both.

No record is lost. Before anything is deleted, all that is large lies ready beside the records, complete and counted,
and the plan is written that says what becomes of what. From then on the only way is forward: `settle` goes it, first
thing in each run.

Each step may be cut off anywhere and is done again from its start:

1. The files are written to `staged`, where no reader looks. Cut off: they are overwritten, or swept by `settle`.
2. They are counted against what they replace, and `plan.json` is written: there in full, or not at all.
3. The folders of the batches are deleted.
4. The files are moved into the folder of the last of these batches, one by one. That some are missing from `staged`
   says that step 3 is done; it must not be done again then, as that folder holds what is large by now.
5. `staged` is deleted, and older plans of the day. The plan stays: catalogue.py reads by it.

Between 3 and 5 a reader misses records of that day: for some milliseconds where a store moves files, for as long as it
copies them where it can't (s3a). Only an exchange of folders would spare that, and no store of Hadoop's has one. Who
reads by the plans misses nothing (catalogue.py).

Only batches that the checkpoint counts as done are touched: Spark never writes them again, so it can't replace the
large files by one batch. A batch that comes later, with records of an old day, stands beside them until it is worth
while to take it in.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from services.pipeline.archives.hadoop import HadoopFolder
from services.pipeline.archives.layout import (
    CHECKPOINT,
    COMPACTION,
    PARQUET,
    PLAN,
    STAGED,
    BatchFolder,
    Holding,
    Plan,
    latest_plans,
)
from services.pipeline.kafka_source import SCHEMA

ORDER = ("topic", "generation", "partition", "offset")
ARCHIVED = f"{SCHEMA}, generation int"
"""Columns of an archive's files; those of before there were generations lack the last one."""
ROW_GROUP_BYTES = 32 << 20  # what a reader holds at most
WORTH_WHILE = 2  # times as many files as are needed

log = structlog.get_logger(__name__)


class CompactionError(Exception):
    """A day can't be compacted; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """Which days, and how large their files get."""

    after: timedelta = timedelta(hours=1)
    """How long after its end a day is taken for finished: batches are behind, and so are clocks."""
    file_bytes: int = 256 << 20

    def is_finished(self, day: str, now: datetime) -> bool:
        return day < (now - self.after).date().isoformat()

    def files_for(self, total_bytes: int) -> int:
        return max(1, math.ceil(total_bytes / self.file_bytes))

    def is_worth_while(self, sizes: Sequence[int]) -> bool:
        """Not for each late record is a day written again."""
        return len(sizes) >= WORTH_WHILE * self.files_for(sum(sizes))


def sorted_into(records: DataFrame, files: int) -> DataFrame:
    """As many partitions, each a part of the whole order, and in order itself."""
    return records.repartitionByRange(files, *ORDER).sortWithinPartitions(*ORDER)


def holdings_of(written: DataFrame) -> DataFrame:
    """What each file has of each partition."""
    return written.groupBy(f.col("_metadata.file_name").alias("file"), "topic", "generation", "partition").agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.count("offset").alias("records"),
        f.unix_millis(f.min("timestamp")).alias("earliest_ms"),
        f.unix_millis(f.max("timestamp")).alias("latest_ms"),
    )


def compact(
    session: SparkSession,
    folder: str,
    rules: CompactionRules,
    *,
    now: datetime | None = None,
    stopping: threading.Event | None = None,
) -> int:
    """Compacts the days that are finished and worth it, one after the other until `stopping`; how many they were."""
    files = HadoopFolder(session, folder)
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
    """By day, those that Spark is done with."""
    commits = [path.rpartition("/")[2] for path in files.matching(f"{CHECKPOINT}/commits/*")]
    last = max((int(name) for name in commits if name.isdecimal()), default=-1)
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
        for batch in plan.replaced:
            files.delete(str(batch))
    files.make(str(into))
    for name in sorted(staged):
        files.move(f"{into.staged}/{name}", f"{into}/{name}")
    files.delete(into.staged)
    for path in files.matching(f"{COMPACTION}/day={into.day}/batch=*"):
        if BatchFolder.of(path) != into:
            files.delete(path)


def settle(files: HadoopFolder) -> None:
    """Carries out plans that were cut off, and sweeps what never became a plan."""
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
