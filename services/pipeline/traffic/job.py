"""The job `traffic`: counters of gateways and sidecars, from mesh.traffic to control's tables, by minute, hour and day.

    spans ──> reports, folded by the reading tasks ──> in the order of keys ──> added to the tables, by one task

1. A batch is the span between two positions, as in all jobs (`kafka/positions.py`). But the position is in the
   database, and the transaction that writes the rows also sets the position (`traffic/writer.py`). So each report
   counts exactly once, whenever the job is killed. There is no checkpoint to lose, and no state: the memory holds one
   batch.
2. A batch adds to the minutes, hours and days of its reports. So no report is too late to count. The watermark
   (`traffic/watermark.py`) is the time up to which the tables are complete; a report behind the watermark is counted as
   late.
3. A task folds its reports (`traffic/rollup.py`), and yields pieces of hundreds of sums (`traffic/pieces.py`). Spark
   sorts the pieces by their keys in bounded memory, and does not parse them. One task writes, because one transaction
   has one connection.
4. During a batch, the job reports how long ago the last task ended. So `serve` ends a driver that hangs, and lets a
   long batch go on.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import cast

import pyarrow
import structlog
from confluent_kafka import Message
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, Row, SparkSession

from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptance, Acceptances, given_up
from services.pipeline.kafka.lags import Lag, lag_of, lost_spans
from services.pipeline.kafka.positions import (
    Position,
    RecordsLostError,
    Span,
    TopicLog,
    TopicReplacedError,
    advance,
    spans,
)
from services.pipeline.kafka.ranges import shares
from services.pipeline.kafka.rows import milliseconds_of
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.postgres.tables import Database
from services.pipeline.spark import hang_watch
from services.pipeline.spark.hang_watch import HangWatch
from services.pipeline.traffic import pieces
from services.pipeline.traffic.progress import Keeping, Ledger, LedgerError
from services.pipeline.traffic.receipts import ReceiptFold
from services.pipeline.traffic.reports import read_report
from services.pipeline.traffic.rollup import Fold, Step
from services.pipeline.traffic.watermark import Extent, Place, Report, watermark
from services.pipeline.traffic.writer import Counts, Outcome, Plan, write

BATCH_REPORTS = 2_000
"""Reports of a batch, each with hundreds of counters: some seconds of work, compared with a short start of a batch."""
MOST_SUMS = 20_000
"""The most sums that a task holds before it yields them; each has about 3 kB."""
MOST_ANEW = 3
"""Times in a row that a batch is planned again: a transaction of a killed driver may still arrive."""
CLEAN_EVERY_S = 3_600.0
FETCHED_AHEAD = {"queued.max.messages.kbytes": "8192"}
"""The limit of each task: about 80 reports. Records beyond the end of its spans are fetched in vain."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OVERTAKEN = "another pipeline rolls up traffic into this database: one is enough, stop this one or the other"
ANEW = "goes on with the topic that has the name now, from its start"

JOB = "traffic"

log = structlog.get_logger(__name__)


class TrafficError(Exception):
    """The job can't continue; the message has the reason and the remedy."""


class OvertakenError(LedgerError):
    """Another pipeline has written since this one read the tables."""


@dataclass(slots=True)
class RolledUp:
    """The result of a run."""

    batches: int = 0
    reports: int = 0
    counters: int = 0
    repeated: int = 0
    late: int = 0
    refused: int = 0
    seconds: float = 0.0
    is_cut_short: bool = False
    """The run was stopped before it had taken all reports."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The data that the tasks of a batch need to read and fold reports. Pickled for Spark's workers."""

    source: KafkaSource
    shares: Sequence[Sequence[Span]]
    """The spans of each task."""
    begins: Mapping[Step, date]
    """The first day of each step that has rows, ..."""
    receipts_begin: date
    """... and that of receipts."""
    left_out: frozenset[Place]
    """Places of reports that are not folded."""
    now: datetime


def folded(session: SparkSession, reading: Reading) -> DataFrame:
    """The reports of the shares, and their sums (`traffic/pieces.py`)."""
    tasks = max(1, len(reading.shares))
    return session.range(0, tasks, 1, tasks).mapInArrow(partial(fold_shares, reading), pieces.SCHEMA)


def in_order(frame: DataFrame) -> DataFrame:
    """All rows for one task, in the order that the writer needs."""
    return frame.repartition(1).sortWithinPartitions(*pieces.ORDER)


def fold_shares(reading: Reading, tasks: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Reads and folds the shares in a worker of Spark."""
    fold, receipts = Fold(reading.begins), ReceiptFold(reading.receipts_begin)
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
        if report.end is not None:
            receipts.add(report.start.timestamp(), report.end.timestamp(), read.receipts)
        if len(fold) + len(receipts) >= MOST_SUMS:
            yield from _taken(fold)
            yield from pieces.of_receipts(receipts.take())
    yield from _taken(fold)
    yield from pieces.of_receipts(receipts.take())
    yield pieces.of_reports(reports)


def _messages(reading: Reading, tasks: Iterator[pyarrow.RecordBatch]) -> Iterator[tuple[int, Message]]:
    """The messages, with their partitions."""
    for batch in tasks:
        for task in batch.column("id").to_pylist():
            share = reading.shares[task] if reading.shares else ()
            for _cluster, read in reading.source.batches(share):
                for message in cast("list[Message]", read.records):
                    yield read.partition, message


def _written(message: Message) -> datetime | None:
    """Kafka's time. None also for a time after the year 9999: Kafka accepts it, and Python can't represent it."""
    milliseconds = milliseconds_of(message)
    try:
        return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _taken(fold: Fold) -> Iterator[pyarrow.RecordBatch]:
    sums, series = fold.take()
    yield from pieces.of_sums(sums)
    yield from pieces.of_series(series)


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
    """Rolls up the existing reports, and returns; with `every`, checks for reports at intervals until `stopping`."""
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
        self._hangs = HangWatch(session)
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
        today = datetime.now(UTC).date()
        self._ledger.drop_days(self._keeping.begins(today), self._keeping.receipts_begin(today))

    def _take_batch(self, logs: dict[str, TopicLog], looked: datetime) -> bool:
        """Takes the next batch; whether there were reports."""
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
            receipts_begin=self._keeping.receipts_begin(looked.date()),
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
        """Answers the acceptances, because the job is now past the losses."""
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
        """Reports the problem; the job ends because of it. An operator sees the reason, and may accept the loss."""
        lost = self._source.topics
        job_reports.tell(job_reports.JobReport(JOB, apart=dict.fromkeys(lost, str(problem)), lost=lost))

    def _write(self, plan: Plan, planned: Sequence[Span], lag: Lag) -> bool:
        """Writes the batch; `lag` is the lag behind it.

        False if another pipeline has written meanwhile; then the next batch has to be planned again.
        """
        began = time.monotonic()
        outcome = self._attempt(plan, planned)
        if outcome.leave_out is not None:
            outcome = self._attempt(replace(plan, left_out=outcome.leave_out), planned)
        if outcome.is_overtaken or outcome.leave_out is not None:
            self._anew += 1
            if self._anew > MOST_ANEW:
                raise OvertakenError(OVERTAKEN)
            log.warning("a batch of traffic is planned again", reason=OVERTAKEN)
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
            receipts_begin=plan.receipts_begin,
            left_out=plan.left_out,
            now=datetime.now(UTC),
        )
        frame = in_order(folded(self._session, reading)).mapInArrow(
            partial(write, self._ledger.database, plan), "outcome string"
        )
        (row,) = self._collected(frame)
        return Outcome.of_json(row["outcome"])

    def _collected(self, frame: DataFrame) -> list[Row]:
        """The rows of the frame; meanwhile reports that the job is alive, and how long it has made no progress."""
        group = f"traffic batch {uuid.uuid4()}"

        def collect() -> list[Row]:
            self._session.sparkContext.setJobGroup(group, "traffic batch")
            rows: list[Row] = frame.collect()
            return rows

        with ThreadPoolExecutor(1, "traffic batch") as beside:
            as_here = inheritable_thread_target(self._session)
            collecting: Future[list[Row]] = beside.submit(as_here(collect))
            while not wait([collecting], hang_watch.EVERY_S).done:
                job_reports.tell(job_reports.JobReport(JOB, stuck_s=self._hangs.stuck_s_of(group)))
            return collecting.result()

    def _note(self, outcome: Outcome, seconds: float) -> None:
        done, counts = self._done, outcome.counts
        done.batches += 1
        done.reports += counts.reports
        done.counters += counts.counters
        done.repeated += counts.repeated
        done.late += counts.late
        done.refused += counts.refused
        for partition, offset, problem in outcome.refused:
            log.warning("a traffic report is refused", partition=partition, offset=offset, problem=problem)
        log.info("batch written", reports=counts.reports, counters=counts.counters, repeated=counts.repeated,
                 late=counts.late, refused=counts.refused, seconds=round(seconds, 2))  # fmt: skip


def _tell_serve(counts: Counts, lag: Lag, complete_until: float | None) -> None:
    """Reports the progress to `serve`."""
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
