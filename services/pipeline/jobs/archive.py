"""The job `archive`: topics to Parquet, by day.

    FOLDER/day=2026-11-21/batch=17/part-….parquet     columns of kafka_source.SCHEMA, and `generation`
    FOLDER/_checkpoint/                               where the job stands; belongs to the data, moves with it
    FOLDER/_compaction/                               how small files of finished days became large ones: also

1. Exactly once, for any reader of Parquet. Spark writes down the span of a batch before it reads it, and after a crash
   runs that batch again, with the same records. A batch has folders of its own. Records of it that stand there stay,
   because their topic may be gone by now; the records that are missing are added. (Spark's own file sink is
   exactly-once only for readers that know its log; others see the files of attempts that were killed.)
2. Batch numbers count from the checkpoint, so data without their checkpoint are refused: batch 0 would meet batch 0.
3. A continuous run looks for records once an interval, and archives all that is there before it pauses. Each look is a
   query of its own that ends by itself.
4. A topic with a problem is set apart: the others are archived, and the topic's problem is told with every look. If
   another topic has taken a topic's name (it was created again, or a rule moved it), the archive reads the new topic
   from its start as the next `generation`. Only a loss by retention needs an operator's word: `accept_loss`, or an
   order through control (`acceptances.py`), for which the job looks at once.
5. Days that are finished are compacted, which keeps these promises: archives/compaction.py says how.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from services.pipeline import job_reports
from services.pipeline.acceptances import Acceptances, given_up
from services.pipeline.archives.background import BackgroundCompaction
from services.pipeline.archives.compaction import ROW_GROUP_BYTES, CompactionRules, compact, settle
from services.pipeline.archives.hadoop import HadoopFolder
from services.pipeline.archives.layout import CHECKPOINT, position_of
from services.pipeline.archives.ownership import FolderOwner
from services.pipeline.hang_watch import HangWatch
from services.pipeline.kafka_source import KafkaSource
from services.pipeline.positions import RecordsLostError, Span, StreamError, lag_of, lost_spans

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STOP_POLL_S = 0.5  # how soon an order to stop is seen
DAY_FOLDERS = "day=*"
PLACE = ("cluster", "topic", "partition", "offset")
"""Of a record; archives of one cluster do not name it."""
JOB = "archive"
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
    apart: dict[str, str] = field(default_factory=dict)
    """Topics that are set apart, and why."""


def by_day(records: DataFrame, batch: int, generations: Mapping[str, int]) -> DataFrame:
    """Records with the folders that they go to, in the order of their offsets."""
    generation = f.lit(0)
    for topic, number in generations.items():
        generation = f.when(f.col("topic") == topic, f.lit(number)).otherwise(generation)
    placed = records.withColumns({"generation": generation, "day": f.to_date("timestamp"), "batch": f.lit(batch)})
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
    acceptances: Acceptances | None = None,
) -> Written:
    """Archives what there is, and returns; with `every`, looks again and again until `stopping`, and at once when
    there is an acceptance.

    With `rules`, finished days are compacted: at the end, or meanwhile.
    """
    archiving = _Run(session, source, folder.rstrip("/"), stopping or threading.Event(), acceptances or Acceptances())
    beside = BackgroundCompaction(session, folder.rstrip("/"), rules, compact_every) if rules and every else None
    with beside or nullcontext():
        archiving.until_told(every, beside.turn if beside else lambda: None)
    written = archiving.written
    if beside:
        written.days_compacted = beside.days
    elif rules and not written.is_cut_short:
        written.days_compacted = compact(session, archiving.folder, rules, stopping=stopping)
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
    ) -> None:
        self.folder = folder
        self.written = Written()
        self._session = session
        self._source = replace(source, skip_absent=True, accept_replaced=True, sets_apart=True)
        self._files = HadoopFolder(session, folder)
        self._stopping = stopping
        self._acceptances = acceptances
        self._hangs = HangWatch(session)
        self._told = 0
        """Records that serve has heard of."""
        _check_folder(self._files)
        self._owner = FolderOwner(self._files)
        self._owner.take()
        settle(self._files)

    def until_told(self, every: timedelta | None, beside: Callable[[], None]) -> None:
        """`beside` is called often."""
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
        """To stop, or to look at once."""
        return self._stopping.is_set() or self._acceptances.has_news

    def _look(self, beside: Callable[[], None]) -> None:
        """Archives all that is there now."""
        accepted = self._acceptances.open_for(self._source.topics)
        gone = self._gone_of(accepted)
        query = (
            replace(self._source, accept_loss_of=(*self._source.accept_loss_of, *accepted))
            .stream(self._session)
            .writeStream.foreachBatch(self._write)
            .option("checkpointLocation", f"{self.folder}/{CHECKPOINT}")
            .trigger(availableNow=True)
            .start()
        )
        try:
            while not (ended := query.awaitTermination(STOP_POLL_S)) and not self._stopping.is_set():
                beside()
                self._tell_when_due(query)
        finally:
            query.stop()
        self.written.is_cut_short = not ended
        apart = self._judge()
        for topic, problem in ((topic, apart.get(topic)) for topic in accepted):
            for each in accepted[topic] if not isinstance(problem, RecordsLostError) else ():
                text = str(problem) if problem else given_up(gone[topic])
                self._acceptances.answer(each, text, is_done=problem is None)

    def _gone_of(self, topics: Collection[str]) -> dict[str, list[Span]]:
        """What retention has taken of topics that is not archived."""
        if not topics:
            return {}
        lost = lost_spans(self._files.committed_position(), self._source.logs())
        return {topic: [span for span in lost if span.topic == topic] for topic in topics}

    def _judge(self) -> Mapping[str, StreamError]:
        """How far the archive is behind, and which topics are set apart."""
        looked = time.time()
        logs = self._source.logs()
        position = self._files.committed_position()
        apart = self._source.problems(position, logs)
        for topic, problem in apart.items():
            if str(problem) != str(self.written.apart.get(topic)):
                log.warning("a topic is set apart; the others are archived", topic=topic, problem=str(problem))
        self.written.apart = {topic: str(problem) for topic, problem in apart.items()}
        lag = lag_of(position, logs)
        job_reports.tell(
            job_reports.JobReport(
                JOB,
                records=self._untold(),
                behind=lag.behind,
                spare=lag.spare,
                complete_until=None if apart or lag.behind else looked,
                apart=self.written.apart,
                lost=[topic for topic, problem in apart.items() if isinstance(problem, RecordsLostError)],
            )
        )
        return apart

    def _tell_when_due(self, query: StreamingQuery | None = None) -> None:
        """That the job is alive: while a query is at work, how long it has made no progress."""
        if self._hangs.is_due:
            job_reports.tell(job_reports.JobReport(JOB, records=self._untold(), stuck_s=self._hangs.stuck_s(query)))

    def _untold(self) -> int:
        told, self._told = self._told, self.written.records
        return self.written.records - told

    def _write(self, records: DataFrame, batch: int) -> None:
        begun = time.monotonic()
        self._owner.check()
        standing = self._files.matching(f"{DAY_FOLDERS}/batch={batch}")
        if standing:
            records = _without(records, self._session.read.parquet(*(f"{self.folder}/{each}" for each in standing)))
        position = position_of(self._files.read(f"{CHECKPOINT}/offsets/{batch}"))
        observation = Observation()
        counted = records.observe(observation, f.count(f.lit(1)).alias("records"))
        (
            by_day(counted, batch, {topic: each.generation for topic, each in position.items() if each.generation})
            .write.partitionBy("day", "batch")
            .mode("append" if standing else "overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("parquet.block.size", str(ROW_GROUP_BYTES))
            .parquet(self.folder)
        )
        self._owner.check()  # before Spark notes the batch as done: whoever has the folder now runs it again
        count = observation.get["records"]
        self.written.batches += 1
        self.written.records += count
        log.info("batch written", batch=batch, records=count, seconds=round(time.monotonic() - begun, 2))


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
