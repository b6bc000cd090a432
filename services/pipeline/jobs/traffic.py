"""The job `traffic`: counters of gateways and sidecars, from mesh.traffic to control's tables, by minute, hour and day.

    spans ──> reports, folded by whoever reads them ──> in the order of keys ──> added to what stands, by one task

1. A batch is the span between two positions, as everywhere (`positions.py`), but the position stands in the database,
   in the transaction that writes the rows (`traffic/writing.py`). So each report counts exactly once, whenever the job
   is killed, and there is no checkpoint to lose, and no state: memory holds one batch.
2. A batch adds to whatever minute, hour and day its reports are about. So nothing is too late to count; the watermark
   (`traffic/sifting.py`) says up to when the tables are complete, and what comes behind it is counted as late.
3. A task folds what it reads (`traffic/sums.py`), and gives on pieces of hundreds of sums (`traffic/rows.py`): Spark
   brings them together in the order of their keys, in bounded memory, and looks into none of them. One task writes: one
   transaction has one connection.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import cast

import pyarrow
import structlog
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession

from services.pipeline import job_reports
from services.pipeline.acceptances import Acceptance, Acceptances, given_up
from services.pipeline.kafka_source import KafkaSource, milliseconds_of
from services.pipeline.positions import (
    Lag,
    Position,
    RecordsLostError,
    Span,
    TopicLog,
    TopicReplacedError,
    advance,
    lag_of,
    lost_spans,
    spans,
)
from services.pipeline.ranges import shares
from services.pipeline.tables import Database
from services.pipeline.traffic import rows
from services.pipeline.traffic.ledger import Keeping, Ledger, LedgerError
from services.pipeline.traffic.reports import read_report
from services.pipeline.traffic.sifting import Extent, Place, Report, watermark
from services.pipeline.traffic.sums import Fold, Step
from services.pipeline.traffic.writing import Counts, Outcome, Plan, write

BATCH_REPORTS = 2_000
"""Of a batch, with hundreds of counters each: some seconds of work, so that to begin one is little of it."""
MOST_SUMS = 20_000
"""That a task holds, each of some 3 kB, before it gives them on."""
MOST_ANEW = 3
"""Times in a row that a batch is made anew: what a driver that was killed had begun may still arrive."""
CLEAN_EVERY_S = 3_600.0
FETCHED_AHEAD = {"queued.max.messages.kbytes": "8192"}
"""By a task: some 80 reports. What is fetched beyond the end of its spans is thrown away."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OVERTAKEN = "another pipeline rolls up traffic into this database: one is enough, stop this one or the other"
ANEW = "goes on with the topic that has the name now, from its start"

JOB = "traffic"

log = structlog.get_logger(__name__)


class TrafficError(Exception):
    """The job can't go on; the message says why, and the way out."""


class OvertakenError(LedgerError):
    """Somebody else has written since we looked."""


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


@dataclass(frozen=True, slots=True)
class Reading:
    """What the tasks of a batch read, and what they fold of it. Goes to Spark's workers."""

    source: KafkaSource
    shares: Sequence[Sequence[Span]]
    """Of each task."""
    begins: Mapping[Step, date]
    """The first day of each step of which there are rows."""
    left_out: frozenset[Place]
    """Reports that are not folded."""
    now: datetime


def folded(session: SparkSession, reading: Reading) -> DataFrame:
    """The reports of the shares, and what they come to (`traffic/rows.py`)."""
    tasks = max(1, len(reading.shares))
    return session.range(0, tasks, 1, tasks).mapInArrow(partial(fold_shares, reading), rows.SCHEMA)


def in_order(frame: DataFrame) -> DataFrame:
    """All of it for one task, as whoever writes wants it."""
    return frame.repartition(1).sortWithinPartitions(*rows.ORDER)


def fold_shares(reading: Reading, tasks: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """In a worker of Spark's."""
    fold = Fold(reading.begins)
    reports: list[tuple[Report, bool]] = []
    seen: set[str] = set()
    for partition, message in _messages(reading, tasks):
        place = partition, message.offset() or 0
        read = read_report(message.value(), place, _written(message), reading.now)
        report = read.report
        counts = report.id is not None and report.id not in seen and report.place not in reading.left_out
        reports.append((report, counts))
        if not counts or report.id is None or report.start is None:
            continue
        seen.add(report.id)
        fold.add(int(report.start.timestamp()), read.reporter, read.counters)
        if len(fold) >= MOST_SUMS:
            yield from _taken(fold)
    yield from _taken(fold)
    yield rows.of_reports(reports)


def _messages(reading: Reading, tasks: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[int, Message]]:
    """With their partitions."""
    for batch in tasks:
        for task in batch.column("id").to_pylist():
            share = reading.shares[task] if reading.shares else ()
            for _cluster, read in reading.source.batches(share):
                for message in cast("list[Message]", read.records):
                    yield read.partition, message


def _written(message: Message) -> datetime | None:
    """Kafka's time. None also for what is behind the year 9999: Kafka takes it, and Python has no such time."""
    milliseconds = milliseconds_of(message)
    try:
        return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _taken(fold: Fold) -> Iterator[pyarrow.RecordBatch]:
    sums, series = fold.take()
    yield from rows.of_sums(sums)
    yield from rows.of_series(series)


def run(
    session: SparkSession,
    source: KafkaSource,
    database: Database,
    *,
    keeping: Keeping,
    every: timedelta | None = None,
    stopping: threading.Event | None = None,
    acceptances: Acceptances | None = None,
) -> RolledUp:
    """Rolls up what there is, and returns; with `every`, looks again and again until `stopping`."""
    told = acceptances or Acceptances()
    return _Run(session, source, Ledger(database), keeping, stopping or threading.Event(), told).until_told(every)


class _Run:
    """One run of the job."""

    def __init__(
        self,
        session: SparkSession,
        source: KafkaSource,
        ledger: Ledger,
        keeping: Keeping,
        stopping: threading.Event,
        acceptances: Acceptances,
    ) -> None:
        self._session = session
        self._source = source
        clusters = {name: FETCHED_AHEAD | dict(properties) for name, properties in source.clusters.items()}
        self._read = replace(source, clusters=clusters)
        self._ledger = ledger
        self._keeping = keeping
        self._stopping = stopping
        self._acceptances = acceptances
        self._anew = 0
        self._cleaned = 0.0
        self._done = RolledUp()

    def until_told(self, every: timedelta | None) -> RolledUp:
        began = time.monotonic()
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
        accepted = self._acceptances.open_for(self._source.topics)
        position = self._next(progress.position, logs, is_accepted=bool(accepted))
        if position == progress.position:
            self._answer(accepted, given_up([]))
            extents = _extents(logs, position)
            complete_until = watermark(progress.complete_until, extents.values(), looked)
            self._ledger.tell(progress, complete_until)
            _tell_serve(Counts(), lag_of(position, logs), complete_until.timestamp() if complete_until else None)
            return False
        plan = Plan(
            after=progress.batch,
            position=position,
            complete_until=progress.complete_until,
            extents=_extents(logs, position),
            looked=looked,
            begins=self._keeping.begins(looked.date()),
        )
        if self._write(plan, list(spans(progress.position, position)), lag_of(position, logs)):
            is_anew = any(
                each.generation != progress.position[topic].generation
                for topic, each in position.items()
                if topic in progress.position
            )
            self._answer(accepted, ANEW if is_anew else given_up(lost_spans(progress.position, logs)))
        return True

    def _answer(self, accepted: Mapping[str, Sequence[Acceptance]], text: str) -> None:
        """What operators have accepted is behind the job now."""
        for each in chain.from_iterable(accepted.values()):
            self._acceptances.answer(each, text)

    def _next(self, position: Position, logs: dict[str, TopicLog], *, is_accepted: bool) -> Position:
        accepted = self._source.accept_loss or is_accepted
        try:
            return advance(position, logs, max_rows=BATCH_REPORTS, accept_loss=accepted, accept_replaced=accepted)
        except TopicReplacedError as error:
            problem = TrafficError(
                f"{', '.join(self._source.topics)} is not the topic that was read so far ({error}); what of that one "
                "was not counted is lost: go on with the new one with --accept-loss"
            )
            self._tell_lost(problem)
            raise problem from error
        except RecordsLostError as error:
            self._tell_lost(error)
            raise

    def _tell_lost(self, problem: Exception) -> None:
        """The job ends for it; an operator sees why, and may accept it."""
        lost = self._source.topics
        job_reports.tell(job_reports.JobReport(JOB, apart=dict.fromkeys(lost, str(problem)), lost=lost))

    def _write(self, plan: Plan, planned: Sequence[Span], lag: Lag) -> bool:
        """Writes the batch, behind which there is `lag`. False when somebody else has written meanwhile: then another
        batch is to be planned.
        """
        began = time.monotonic()
        outcome = self._attempt(plan, planned)
        if outcome.leave_out is not None:
            outcome = self._attempt(replace(plan, left_out=outcome.leave_out), planned)
        if outcome.is_overtaken or outcome.leave_out is not None:
            self._anew += 1
            if self._anew > MOST_ANEW:
                raise OvertakenError(OVERTAKEN)
            log.warning("batch made anew", reason=OVERTAKEN)
            job_reports.tell(job_reports.JobReport(JOB, failures=1))
            return False
        self._anew = 0
        self._note(outcome, time.monotonic() - began)
        _tell_serve(outcome.counts, lag, outcome.complete_until)
        return True

    def _attempt(self, plan: Plan, planned: Sequence[Span]) -> Outcome:
        reading = Reading(
            source=self._read,
            shares=shares(planned, self._session.sparkContext.defaultParallelism),
            begins=plan.begins,
            left_out=plan.left_out,
            now=datetime.now(UTC),
        )
        frame = in_order(folded(self._session, reading))
        (row,) = frame.mapInArrow(partial(write, self._ledger.database, plan), "outcome string").collect()
        return Outcome.of_json(row["outcome"])

    def _note(self, outcome: Outcome, seconds: float) -> None:
        done, counts = self._done, outcome.counts
        done.batches += 1
        done.reports += counts.reports
        done.counters += counts.counters
        done.repeated += counts.repeated
        done.late += counts.late
        done.refused += counts.refused
        for partition, offset, problem in outcome.refused:
            log.warning("report refused", partition=partition, offset=offset, problem=problem)
        log.info("batch written", reports=counts.reports, counters=counts.counters, repeated=counts.repeated,
                 late=counts.late, refused=counts.refused, seconds=round(seconds, 2))  # fmt: skip


def _tell_serve(counts: Counts, lag: Lag, complete_until: float | None) -> None:
    """How far it is."""
    job_reports.tell(
        job_reports.JobReport(
            JOB,
            records=counts.reports + counts.repeated + counts.refused,
            refused=counts.refused,
            behind=lag.behind,
            spare=lag.spare,
            complete_until=complete_until,
            apart={},
        )
    )


def _extents(logs: Mapping[str, TopicLog], position: Position) -> dict[int, Extent]:
    return {
        partition: Extent(each.end, position[topic].next[partition], None)
        for topic, log_ in logs.items()
        for partition, each in log_.partitions.items()
    }
