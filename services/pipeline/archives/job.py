"""The job `archive`: topics to Parquet, by day.

    `FOLDER/day=2026-11-21/batch=17/part-….parquet`     columns of kafka/rows.py, and `generation`.
    `FOLDER/_staged/…`                                  files of a batch, until the driver moves them to their days.
    `FOLDER/_checkpoint/`                               the position of the job; belongs to the data, moves with it.
    `FOLDER/_compaction/`                               the plans of compactions; belongs to the data too.

1. Each record is in the archive exactly once, for any reader of Parquet. Spark writes down the span of a batch before
   it reads the records. After a crash, Spark runs the batch again with the same records. A batch has folders of its
   own. The records that are already there stay, because their topic may be gone by now; the missing records are added.
   (Spark's own file sink is exactly-once only for readers that know its log. Other readers see the files of killed
   attempts.) Spark writes beside the days, and the driver moves the files. So the write of a driver that stood still
   and has lost the folder (storage/ownership.py) replaces nothing.
2. Batch numbers count from the checkpoint. So data without their checkpoint are refused: a new batch 0 would collide
   with the existing batch 0.
3. A continuous run checks for records once in each interval, and archives all of them before the next pause. Each check
   is a query of its own that ends by itself.
4. A topic with a problem is set apart: the other topics are archived, and each check reports the problem. Another topic
   may take the name (a topic was created again, or a rule moved it). Then the archive reads the new topic from its
   start as the next `generation`. If a rule moves the topic back, the archive goes on in the former generation. A rule
   may move a topic before all its records are archived. Then the archive reads the rest from the former cluster
   (kafka/left_records.py). Only a loss needs an operator's decision: `accept_loss`, or an order through control
   (`driver_protocol/acceptances.py`), which starts a check at once.
5. Finished days are compacted, which keeps these promises: see archives/compaction.py.
6. A topic may move or be replaced after a batch was planned. Such a batch fails, because its records may come from
   another topic. If it has written nothing, the next check forgets its plan, and plans what is there then.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from services.pipeline.archives.compaction import (
    ROW_GROUP_BYTES,
    BackgroundCompaction,
    CompactionRules,
    compact,
    settle,
)
from services.pipeline.archives.former_clusters import FormerClusters
from services.pipeline.archives.left_behind import LeftBehind, both, left_behind
from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptances, given_up
from services.pipeline.kafka.lags import lag_of, lost_spans
from services.pipeline.kafka.left_records import stays_of
from services.pipeline.kafka.positions import Position, RecordsLostError, StreamError, as_of
from services.pipeline.kafka.rows import GENERATION
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.spark.data_source import open_stream
from services.pipeline.spark.hang_watch import HangWatch
from services.pipeline.storage.hadoop import HadoopFolder
from services.pipeline.storage.layout import CHECKPOINT, STAGE
from services.pipeline.storage.ownership import OwnedFolder

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STOP_POLL_S = 0.5  # delay until an order to stop is noticed
DAY_FOLDERS = "day=*"
PLACE = ("cluster", "topic", "partition", "offset", GENERATION)
"""Columns that identify a record; the archive of a single source has no column `cluster`."""
JOB = "archive"
COMPACT_EVERY = timedelta(hours=1)  # interval at which a continuous job checks for days that have ended

log = structlog.get_logger(__name__)


class ArchiveError(Exception):
    """The folder can't be used for the archive."""


@dataclass(slots=True)
class Written:
    """The result of a run."""

    batches: int = 0
    records: int = 0
    seconds: float = 0.0
    is_cut_short: bool = False
    """The run was stopped before it had archived all records."""
    days_compacted: int = 0
    apart: dict[str, str] = field(default_factory=dict)
    """Topics that are set apart, with the reason."""


def by_day(records: DataFrame, batch: int) -> DataFrame:
    """Records with the columns of their folders, sorted by offset in each folder."""
    placed = records.withColumns({"day": f.to_date("timestamp"), "batch": f.lit(batch)})
    return placed.sortWithinPartitions("day", "batch", "topic", GENERATION, "partition", "offset")


def run(
    session: SparkSession,
    source: KafkaSource,
    folder: str,
    *,
    every: timedelta | None = None,
    stopping: threading.Event | None = None,
    rules: CompactionRules | None = None,
    compact_every: timedelta = COMPACT_EVERY,
    acceptances: Acceptances | None = None,
    former_clusters: FormerClusters | None = None,
) -> Written:
    """Archives the existing records, and returns; with `every`, repeats this until `stopping`.

    An acceptance starts the next check at once. With `rules`, finished days are compacted: at the end, or in the
    background. `former_clusters` is needed behind a gateway: it finds the clusters from which topics were moved.
    """
    archiving = _Run(
        session,
        source,
        folder.rstrip("/"),
        stopping or threading.Event(),
        acceptances or Acceptances(),
        former_clusters,
    )
    beside = BackgroundCompaction(session, archiving.files, rules, compact_every) if rules and every else None
    with beside or nullcontext():
        archiving.until_told(every, beside.turn if beside else lambda: None)
    written = archiving.written
    if beside:
        written.days_compacted = beside.days
    elif rules and not written.is_cut_short:
        written.days_compacted = compact(session, archiving.files, rules, stopping=stopping)
    return written


class _Run:
    """One run of the job."""

    def __init__(
        self,
        session: SparkSession,
        source: KafkaSource,
        folder: str,
        stopping: threading.Event,
        acceptances: Acceptances,
        former_clusters: FormerClusters | None,
    ) -> None:
        self.folder = folder
        self.written = Written()
        self._session = session
        self._source = replace(
            source, skip_absent=True, accept_replaced=True, sets_apart=True, numbers_generations=True
        )
        self._former_clusters = former_clusters
        self.files = OwnedFolder(session, folder)
        self._stopping = stopping
        self._acceptances = acceptances
        self._hangs = HangWatch(session)
        self._told = 0
        """Number of records that were reported to `serve`."""
        _check_folder(self.files)
        self.files.take()
        for left in self.files.matching(f"{STAGE}/*"):  # by runs that were cut off; before the days are read
            self.files.delete(left)
        settle(self.files)
        self._checked = self.files.committed_position()
        """The position at the last check."""

    def until_told(self, every: timedelta | None, beside: Callable[[], None]) -> None:
        """Runs checks until the run is stopped; calls `beside` often."""
        began = time.monotonic()
        while not self._stopping.is_set():
            self._look(beside)
            if every is None:
                break
            again = time.monotonic() + every.total_seconds()
            while not self._is_called and (left := again - time.monotonic()) > 0:
                beside()
                self._tell_when_due()
                self._stopping.wait(min(left, STOP_POLL_S))
        else:
            self.written.is_cut_short = every is None
        self.written.seconds = time.monotonic() - began

    @property
    def _is_called(self) -> bool:
        """Whether to stop, or to check at once."""
        return self._stopping.is_set() or self._acceptances.has_news

    def _look(self, beside: Callable[[], None]) -> None:
        """Archives all records that exist now."""
        self.files.check()
        self._forget_unwritten_plan()
        accepted = self._acceptances.open_for(self._source.topics)
        left = self._left_behind()
        given_up_of = self._given_up_of(accepted, left)
        accept_loss_of = (*self._source.accept_loss_of, *accepted)
        ended = self._archive(left.added_to(self._source, accept_loss_of), beside)
        now_left = stays_of(self.files.committed_position(), self._source.topics)
        if now_left.keys() - left.stays.keys():  # the query has found that topics have moved
            left = self._left_behind()
            ended = ended and self._archive(left.added_to(self._source, accept_loss_of), beside)
        self.written.is_cut_short = not ended
        apart = self._judge(left)
        for topic, problem in ((topic, apart.get(topic)) for topic in accepted):
            for each in accepted[topic] if not isinstance(problem, RecordsLostError) else ():
                self._acceptances.answer(each, str(problem or given_up_of[topic]), is_done=problem is None)

    def _archive(self, source: KafkaSource, beside: Callable[[], None]) -> bool:
        """Archives all records of the source that exist now; returns whether it was done before an order to stop."""
        query = (
            open_stream(source, self._session)
            .writeStream.foreachBatch(self._write)
            .option("checkpointLocation", f"{self.folder}/{CHECKPOINT}")
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not (ended := query.awaitTermination(STOP_POLL_S)) and not self._stopping.is_set():
                beside()
                self._tell_when_due(query)
        except Exception:
            self.files.check()  # a new owner deletes the staged files, which fails the write of this run
            raise
        finally:
            query.stop()
        return bool(ended)

    def _forget_unwritten_plan(self) -> None:
        """Drops the plan of a batch that was cut off before it wrote anything."""
        planned = self.files.unfinished_batch()
        if planned is not None and not self._standing(planned):
            self.files.delete(f"{CHECKPOINT}/offsets/{planned}")

    def _left_behind(self) -> LeftBehind:
        return left_behind(self._source, self.files.committed_position(), self._former_clusters)

    def _given_up_of(self, topics: Collection[str], left: LeftBehind) -> dict[str, str]:
        """Sentences by topic that name the records that the acceptance of its losses gives up."""
        if not topics:
            return {}
        logs = self._source.logs()
        position = self.files.committed_position()
        lost, left = lost_spans(as_of(position, logs), logs), left.at(position, self._source)
        found: dict[str, str] = {}
        for topic in topics:
            gone, at_former = [span for span in lost if span.topic == topic], left.given_up(topic)
            found[topic] = "; ".join([given_up(gone)] * bool(gone or not at_former) + at_former)
        return found

    def _judge(self, left: LeftBehind) -> Mapping[str, StreamError]:
        """Reports how far the archive is behind; returns the topics with a problem."""
        looked = time.time()
        logs = self._source.logs()
        position = self.files.committed_position()
        apart = self._source.problems(position, logs)
        left = left.at(position, self._source)
        for topic, problem in left.problems().items():
            apart[topic] = both(apart[topic], problem) if topic in apart else problem
        self._tell_moves(position)
        for topic, problem in apart.items():
            if str(problem) != str(self.written.apart.get(topic)):
                log.warning("a topic is set apart; the others are archived", topic=topic, problem=str(problem))
        self.written.apart = {topic: str(problem) for topic, problem in apart.items()}
        lag = lag_of(as_of(position, logs), logs) + left.lag
        job_reports.tell(
            job_reports.JobReport(
                JOB,
                records=self._untold(),
                behind=lag.behind,
                spare=lag.spare,
                complete_until=None if apart or lag.behind or left.stays else looked,
                apart=self.written.apart,
                lost=[topic for topic, problem in apart.items() if isinstance(problem, RecordsLostError)],
            )
        )
        return apart

    def _tell_moves(self, position: Position) -> None:
        """Warns of topics that rules have moved since the last check, also of moves to a cluster and back."""
        for topic, entry in position.items():
            before = self._checked.get(topic)
            for node, stay in entry.former.items():
                if before is None or before.at == node or node not in before.former:
                    log.warning(
                        "a rule has moved a topic; what was not archived before is read from the former cluster",
                        topic=topic,
                        from_node=node,
                        to_node=entry.at,
                        archived_up_to=stay.next,
                    )
        self._checked = position

    def _tell_when_due(self, query: StreamingQuery | None = None) -> None:
        """Reports that the job is alive; during a query, also how long the query has made no progress."""
        if self._hangs.is_due:
            job_reports.tell(job_reports.JobReport(JOB, records=self._untold(), stuck_s=self._hangs.stuck_s(query)))

    def _untold(self) -> int:
        told, self._told = self._told, self.written.records
        return self.written.records - told

    def _write(self, records: DataFrame, batch: int) -> None:
        begun = time.monotonic()
        self.files.check()
        if standing := self._standing(batch):
            records = _without(records, self._session.read.parquet(*(f"{self.folder}/{each}" for each in standing)))
        observation = Observation()
        counted = records.observe(observation, f.count(f.lit(1)).alias("records"))
        staged = f"{STAGE}/{uuid.uuid4()}"
        (
            by_day(counted, batch)
            .write.partitionBy("day", "batch")
            .option("parquet.block.size", str(ROW_GROUP_BYTES))
            .parquet(f"{self.folder}/{staged}")
        )
        self._publish(staged)
        self.files.check()  # before Spark commits: a new owner runs the batch again
        count = observation.get["records"]
        self.written.batches += 1
        self.written.records += count
        log.info("batch written", batch=batch, records=count, seconds=round(time.monotonic() - begun, 2))

    def _publish(self, staged: str) -> None:
        """Moves the files of a batch to their days."""
        files = {path: path.removeprefix(f"{staged}/") for path in self.files.matching(f"{staged}/{DAY_FOLDERS}/*/*")}
        for folder in sorted({to.rpartition("/")[0] for to in files.values()}):
            self.files.make(folder)
        for path, to in files.items():
            self.files.move(path, to)
        self.files.delete(staged)

    def _standing(self, batch: int) -> list[str]:
        """The folders that have files of this batch, from an attempt that was cut off."""
        return sorted({path.rpartition("/")[0] for path in self.files.matching(f"{DAY_FOLDERS}/batch={batch}/*")})


def _without(records: DataFrame, archived: DataFrame) -> DataFrame:
    """The records that are not in the archive yet."""
    place = [name for name in PLACE if name in records.columns]
    return records.join(archived.select(place), place, "left_anti").select(records.columns)


def _check_folder(files: HadoopFolder) -> None:
    """ArchiveError if the folder has days but no checkpoint."""
    if files.matching(DAY_FOLDERS) and not files.exists(CHECKPOINT):
        raise ArchiveError(
            f"{files.root} holds days but no {CHECKPOINT}: what is archived there is unknown; "
            f"bring {CHECKPOINT} back, or archive into a new folder"
        )
