"""The job `traffic`: counters of gateways and sidecars, from mesh.traffic to control's tables, by minute, hour and day.

    reports ──> which of them count ──> by minute ──> by hour, by day ──> merged with what stands there ──> set

1. A batch is the span between two positions, as everywhere (`positions.py`), but the position stands in the database,
   in the transaction that writes the rows (`traffic/ledger.py`). So each report counts exactly once, whenever the job
   is killed, and there is no checkpoint to lose, and no state: memory holds one batch.
2. A batch adds to whatever minute, hour and day its reports are about. So nothing is too late to count; the watermark
   (`traffic/sifting.py`) says up to when the tables are complete, and what comes behind it is counted as late.
3. Hours and days take the batch as minutes do. None is made from rows of another, which may be gone by then.
4. Latencies are KLL sketches, merged by Spark's own functions; their error stays that of one sketch (1.3 % of rank).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce

import pyarrow
import structlog
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from services.pipeline import job_reports
from services.pipeline.kafka_source import KafkaSource
from services.pipeline.positions import Position, Span, TopicLog, TopicReplacedError, advance, spans
from services.pipeline.ranges import cut
from services.pipeline.tables import Database
from services.pipeline.traffic import reports as rows_of_reports
from services.pipeline.traffic.ledger import (
    ROW,
    STEPS,
    Counts,
    Entry,
    Keeping,
    Ledger,
    OvertakenError,
    Progress,
    beside_what_stands,
    write_series,
)
from services.pipeline.traffic.reports import NUMBERS, TEXTS
from services.pipeline.traffic.sifting import Extent, Report, Sifted, sift, watermark

SKETCH_K = 200
"""Values of a sketch: 1.3 % of rank, 2 kB at most. As gateways and sidecars have it."""
LONGEST_TEXT = 500
"""Characters of a name; PostgreSQL's indexes take 2,700 bytes."""
BATCH_REPORTS = 1_000
"""Reports of a batch, with hundreds of counters each: what memory holds."""
MOST_IN_A_HASH = 20_000
"""Sums of a task that are not sorted; each with its sketch has a kilobyte or two."""
MOST_OVERTAKEN = 3
"""Times in a row that a batch is made anew: what a driver that was killed had begun may still arrive."""
CLEAN_EVERY_S = 3_600.0
TOLD_AT_ONCE = 5
"""Refused reports of a batch that are named in the log."""

JOB = "traffic"

log = structlog.get_logger(__name__)


class TrafficError(Exception):
    """The job can't go on; the message says why, and the way out."""


@dataclass(slots=True)
class RolledUp:
    """What a run has done."""

    batches: int = 0
    reports: int = 0
    counters: int = 0
    repeated: int = 0
    late: int = 0
    refused: int = 0
    seconds: float = 0.0
    is_cut_short: bool = False
    """It was told to stop before it had taken what was there."""


def read_reports(session: SparkSession, source: KafkaSource, planned: Sequence[Span]) -> DataFrame:
    """The reports of spans (columns of `traffic/reports.py`). What reads them makes rows of them, so that records
    don't go through the JVM first.
    """
    pieces = cut(planned, session.sparkContext.defaultParallelism)
    placed = [(each.topic, each.partition, each.start, each.end) for each in pieces]
    frame = session.createDataFrame(
        session.sparkContext.parallelize(placed, max(1, len(placed))),
        "topic string, partition int, start bigint, end bigint",
    )
    return frame.mapInArrow(partial(_read, source), rows_of_reports.SCHEMA)


def _read(source: KafkaSource, spans: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """In a worker of Spark's."""
    for batch in spans:
        for span in batch.to_pylist():
            yield from rows_of_reports.read_reports(source.read(Span(**span)))


def counters_of(reports: DataFrame) -> DataFrame:
    """The counters of reports, each in the minute in which its interval began."""
    texts = [f.left(f.col(name), f.lit(LONGEST_TEXT)).alias(name) for name in (*TEXTS, "reporter")]
    counters = reports.select("reporter", "start", f.inline("counters"))
    return counters.select(f.date_trunc("minute", "start").alias("time"), *texts, *NUMBERS, "latency")


def by_minute(counters: DataFrame) -> DataFrame:
    """Counters together that are of the same series and minute; a series is known by a digest of its names."""
    names = (*TEXTS, "reporter")
    summed = counters.groupBy("time", *names).agg(*_together())
    return summed.withColumn("series", f.md5(f.to_json(f.array(*names))))


def by(step: str, finer: DataFrame) -> DataFrame:
    """Rows of a finer step together, as rows of `step`."""
    return finer.groupBy("series", f.date_trunc(step, "time").alias("time")).agg(*_together())


def _together() -> list[Column]:
    sums = [f.sum(name).alias(name) for name in NUMBERS]
    return [*sums, f.expr(f"if(count(latency) = 0, null, kll_merge_agg_float(latency, {SKETCH_K}))").alias("latency")]


def all_steps(minutes: DataFrame) -> DataFrame:
    """The minutes, and what they come to in hours and days; `step` says which a row is."""
    hours = by("hour", minutes)
    steps = {"minute": minutes, "hour": hours, "day": by("day", hours)}
    return reduce(
        DataFrame.unionByName, (frame.select(f.lit(step).alias("step"), *ROW) for step, frame in steps.items())
    )


def added_to_what_stands(rows: DataFrame) -> DataFrame:
    """Rows that have what stands in the tables beside them (`stood_...`), merged."""
    numbers = [(f.col(name) + f.coalesce(f"stood_{name}", f.lit(0))).alias(name) for name in NUMBERS]
    merged = f.when(
        f.col("latency").isNotNull() & f.col("stood_latency").isNotNull(),
        f.kll_sketch_merge_float("latency", "stood_latency"),
    ).otherwise(f.coalesce("latency", "stood_latency"))
    return rows.select("step", "series", "time", *numbers, merged.alias("latency"))


def run(
    session: SparkSession,
    source: KafkaSource,
    database: Database,
    *,
    keeping: Keeping,
    every: timedelta | None = None,
    stopping: threading.Event | None = None,
) -> RolledUp:
    """Rolls up what there is, and returns; with `every`, looks again and again until `stopping`."""
    return _Run(session, source, Ledger(database), keeping, stopping or threading.Event()).until_told(every)


class _Run:
    """One run of the job."""

    def __init__(
        self, session: SparkSession, source: KafkaSource, ledger: Ledger, keeping: Keeping, stopping: threading.Event
    ) -> None:
        self._session = session
        self._source = source
        self._ledger = ledger
        self._keeping = keeping
        self._stopping = stopping
        self._overtaken = 0
        self._cleaned = 0.0
        self._done = RolledUp()

    def until_told(self, every: timedelta | None) -> RolledUp:
        began = time.monotonic()
        # sketches are sorted when a task has more series than that; by default after 128, which takes twice as long
        self._session.conf.set("spark.sql.objectHashAggregate.sortBased.fallbackThreshold", str(MOST_IN_A_HASH))
        logs, looked = self._look()
        while not self._stopping.is_set():
            self._clean()
            if self._take_batch(logs, looked):
                if every is not None:
                    logs, looked = self._look()
                continue
            if every is None:
                break
            self._stopping.wait(every.total_seconds())
            logs, looked = self._look()
        else:
            self._done.is_cut_short = every is None
        self._done.seconds = time.monotonic() - began
        return self._done

    def _look(self) -> tuple[dict[str, TopicLog], datetime]:
        looked = datetime.now(UTC)
        return self._source.logs(), looked

    def _clean(self) -> None:
        if time.monotonic() - self._cleaned < CLEAN_EVERY_S and self._cleaned:
            return
        self._cleaned = time.monotonic()
        self._ledger.drop_days(self._keeping.begins(datetime.now(UTC).date()))

    def _take_batch(self, logs: dict[str, TopicLog], looked: datetime) -> bool:
        """Whether there was anything to do."""
        progress = self._ledger.progress()
        position = self._next(progress.position, logs)
        if position == progress.position:
            complete_until = watermark(progress.complete_until, _extents(logs, position, {}), looked)
            self._ledger.tell(progress, complete_until)
            _tell_serve(Counts(), _extents(logs, position, {}), complete_until)
            return False
        try:
            self._write(progress, position, logs, looked)
        except OvertakenError as error:
            self._overtaken += 1
            if self._overtaken > MOST_OVERTAKEN:
                raise
            log.warning("batch made anew", reason=str(error))
            job_reports.tell(job_reports.JobReport(JOB, failures=1))
        else:
            self._overtaken = 0
        return True

    def _next(self, position: Position, logs: dict[str, TopicLog]) -> Position:
        accepted = self._source.accept_loss
        try:
            return advance(position, logs, max_rows=BATCH_REPORTS, accept_loss=accepted, accept_replaced=accepted)
        except TopicReplacedError as error:
            raise TrafficError(
                f"{', '.join(self._source.topics)} is not the topic that was read so far ({error}); what of that one "
                "was not counted is lost: go on with the new one with --accept-loss"
            ) from error

    def _write(
        self,
        progress: Progress,
        position: Position,
        logs: dict[str, TopicLog],
        looked: datetime,
    ) -> None:
        began = time.monotonic()
        planned = list(spans(progress.position, position))
        reports = read_reports(self._session, self._source, planned).persist()
        came = [_report(row) for row in reports.selectExpr(*_PLACES).collect()]
        known = self._ledger.known([each.id for each in came if each.id])
        sifted = sift(came, known, progress.complete_until, datetime.now(UTC))
        last = {each.place[0]: each.written for each in sorted(came, key=lambda each: each.place)}
        entry = Entry(
            after=progress.batch,
            position=position,
            complete_until=watermark(progress.complete_until, _extents(logs, position, last), looked),
            reports=[(each.id or "", *each.place) for each in sifted.taken],
            counts=_counts(sifted),
        )
        begins = self._keeping.begins(looked.date())
        minutes = by_minute(counters_of(_only(reports, sifted))).persist()
        rows = all_steps(minutes).where(_kept(begins))
        try:
            write_series(minutes, self._ledger.database)
            days = {each.start.date() for each in sifted.taken if each.start is not None}
            self._ledger.make_days({step: [day for day in days if day >= begins[step]] for step in STEPS})
            self._ledger.write(added_to_what_stands(beside_what_stands(rows, self._ledger.database)), entry)
        finally:
            minutes.unpersist()
            reports.unpersist()
        self._note(entry.counts, sifted, time.monotonic() - began)
        _tell_serve(entry.counts, _extents(logs, position, last), entry.complete_until)

    def _note(self, counts: Counts, sifted: Sifted, seconds: float) -> None:
        done = self._done
        done.batches += 1
        done.reports += counts.reports
        done.counters += counts.counters
        done.repeated += counts.repeated
        done.late += counts.late
        done.refused += counts.refused
        for place, problem in list(sifted.refused.items())[:TOLD_AT_ONCE]:
            log.warning("report refused", partition=place[0], offset=place[1], problem=problem)
        log.info("batch written", reports=counts.reports, counters=counts.counters, repeated=counts.repeated,
                 late=counts.late, refused=counts.refused, seconds=round(seconds, 2))  # fmt: skip


_PLACES = (
    "report",
    "partition",
    "offset",
    "written",
    "start",
    "end",
    "overflowed",
    "problem",
    "size(counters) as size",
)


def _report(row: Row) -> Report:
    return Report(
        place=(row["partition"], row["offset"]),
        written=row["written"] and _utc(row["written"]),
        id=row["report"],
        start=row["start"] and _utc(row["start"]),
        end=row["end"] and _utc(row["end"]),
        counters=row["size"],
        overflowed=row["overflowed"],
        problem=row["problem"],
    )


def _utc(moment: datetime) -> datetime:
    """Of a time that Spark has collected: it has them in the zone of this machine, and does not say so."""
    return moment.astimezone(UTC)


def _counts(sifted: Sifted) -> Counts:
    return Counts(
        reports=len(sifted.taken),
        counters=sum(each.counters for each in sifted.taken),
        repeated=len(sifted.repeated),
        late=sifted.late,
        refused=len(sifted.refused),
        overflowed=sum(each.overflowed for each in sifted.taken),
    )


def _tell_serve(counts: Counts, extents: Sequence[Extent], complete_until: datetime | None) -> None:
    """How far it is."""
    job_reports.tell(
        job_reports.JobReport(
            JOB,
            records=counts.reports + counts.repeated + counts.refused,
            refused=counts.refused,
            behind=sum(max(each.end - each.next, 0) for each in extents),
            complete_until=complete_until.timestamp() if complete_until else None,
        )
    )


def _only(reports: DataFrame, sifted: Sifted) -> DataFrame:
    """The reports that are taken."""
    left_out = [each.place for each in sifted.repeated] + list(sifted.refused)
    if not left_out:
        return reports
    gone = reports.sparkSession.createDataFrame(left_out, "partition int, offset bigint")
    return reports.join(f.broadcast(gone), ["partition", "offset"], "left_anti")


def _kept(begins: Mapping[str, date]) -> Column:
    """Rows of days that their step still has."""
    kept = [
        (f.col("step") == step) & (f.col("time") >= f.lit(day.isoformat()).cast("timestamp"))
        for step, day in begins.items()
    ]
    return reduce(Column.__or__, kept)


def _extents(logs: dict[str, TopicLog], position: Position, last: Mapping[int, datetime | None]) -> list[Extent]:
    return [
        Extent(each.end, position[topic].next[partition], last.get(partition))
        for topic, log_ in logs.items()
        for partition, each in log_.partitions.items()
    ]
