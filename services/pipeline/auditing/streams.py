"""A stream for each cluster, side by side in one Spark session, for as long as the job runs.

1. A stream that fails is started again, after a longer pause each time, and resumes at its checkpoint. The other
   streams are not affected. The reason is written to PostgreSQL, which control reads, and to the log. Streams begin one
   after the other, so that a small machine can start their processes in time. A topic that lost records fails no
   stream: its stream sets the topic apart and reads the others, until an operator accepts the loss.
2. If another run has taken the folder of a cluster, all streams end, and the job with them (storage/ownership.py).
3. The job asks for the clusters repeatedly: a new cluster gets a stream; the stream of a removed cluster is stopped.
4. The progress of a stream is the position after its last batch. The end offsets of the topics come from their cluster.
   Each cluster has a thread for this request, so a cluster that does not answer delays no other cluster's report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import structlog

from mesh.pauses import pause
from services.pipeline.auditing.progress import PartitionState, ProgressTable, partition_states
from services.pipeline.driver_protocol import job_reports
from services.pipeline.driver_protocol.acceptances import Acceptances, given_up
from services.pipeline.kafka.lags import Lag, lag_of, lost_spans
from services.pipeline.kafka.positions import Place, Position, RecordsLostError, StreamError, TopicLog
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.spark.session import first_line, our_sentence
from services.pipeline.storage.ownership import FencedError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from services.pipeline.spark.hang_watch import HangWatch

POLL_S = 0.3  # the delay until the job notices an order to stop or the end of a batch
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LOOK_FOR_CLUSTERS_S = 30.0
ATTEMPTS = 5
"""Attempts in a row for a stream that ends by itself, unless the reason is an error of the pipeline's own.

Examples are a busy machine, or a restart of PostgreSQL.
"""
START_S = 15.0
"""Seconds until the next stream may begin: Spark waits at most 10 s for the Python process of a stream."""
BEGINNINGS = ("Initializing", "Getting offsets")
"""Spark's status messages of a stream that has not asked for offsets yet."""
THREADS = 16
LAST_LOOK_S = 5.0
"""Seconds that clusters have to return the end offsets of their topics when the job stops."""

NEVER = datetime.min.replace(tzinfo=UTC)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Followed:
    """One cluster and the state of its stream."""

    name: str
    source: KafkaSource
    begin: Callable[[Followed], StreamingQuery]
    """Starts the stream."""
    read_position: Callable[[], Position]
    """Reads the position of the stream. FencedError."""
    query: StreamingQuery | None = None
    begun_at: float = float("-inf")
    failed: int = 0
    """Failures in a row, without a batch between them."""
    batches_then: int = 0
    """Number of batches at the last failure."""
    retry_at: float = 0.0
    has_ended: bool = False
    """For streams that end by themselves: the stream has ended, or the job has given it up."""
    problem: str = ""
    newest: dict[Place, datetime] = field(default_factory=dict)
    """Kafka's time of the last stored record of each partition."""
    records: int = 0
    malformed: int = 0
    stored: int = 0
    batches: int = 0
    failures: int = 0
    reported: tuple[int, int, int] = (0, 0, 0)
    """Records, malformed records and failures that were reported to `serve`."""
    has_news: threading.Event = field(default_factory=threading.Event)
    """Set when a batch is stored."""
    position: Position = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    """Topics that lost records to retention before they were read: the stream leaves them out."""
    accepting: frozenset[str] = frozenset()
    """Topics of `lost` whose loss an operator has accepted, so that the stream reads them again."""
    giving_up: dict[str, str] = field(default_factory=dict)
    """Sentences that name the lost offsets, by topic."""
    hangs: HangWatch | None = None
    looking: Future[Mapping[str, TopicLog]] | None = None
    looked: datetime = NEVER
    told_at: float = float("-inf")

    @property
    def topics(self) -> set[str]:
        """The topics, named as in the stream's position."""
        return {f"{self.name}/{topic}" for topic in self.source.topics}

    @property
    def trouble(self) -> str:
        """The reasons why some events are not read; empty if all are."""
        apart = [f"topic {topic} is set apart: {problem}" for topic, problem in self.lost.items()]
        return "; ".join([self.problem, *apart] if self.problem else apart)

    @property
    def has_looked(self) -> bool:
        """Whether the stream has asked for the end offsets at least once."""
        return self.query is not None and not str(self.query.status["message"]).startswith(BEGINNINGS)

    @property
    def is_beginning(self) -> bool:
        is_young = time.monotonic() - self.begun_at < START_S
        return is_young and self.query is not None and self.query.isActive and not self.has_looked


class Following:
    """The streams of all clusters."""

    def __init__(
        self,
        clusters: Callable[[], Mapping[str, Followed]],
        progress: ProgressTable,
        heartbeat: timedelta,
        *,
        goes_on: bool,
        acceptances: Acceptances,
    ) -> None:
        """`clusters` returns the current clusters; `goes_on`: whether streams end only when the job is stopped."""
        self._ask = clusters
        self._acceptances = acceptances
        self._progress = progress
        self._heartbeat_s = heartbeat.total_seconds()
        self._goes_on = goes_on
        self._followed: dict[str, Followed] = {}
        self._asked_at = float("-inf")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="audit progress")

    def run(self, stopping: threading.Event) -> list[Followed]:
        """Runs until all streams have ended, or `stopping` is set. Returns the final state of each cluster.

        FencedError if another run has taken the folder of a cluster.
        """
        try:
            while not stopping.is_set():
                self._look_for_clusters()
                for each in self._followed.values():
                    self._keep_going(each)
                    self._tell(each)
                if not self._goes_on and all(each.has_ended for each in self._followed.values()):
                    break
                stopping.wait(POLL_S)
        finally:
            for each in self._followed.values():
                if each.query is not None:
                    each.query.stop()
            try:
                self._tell_last()
            finally:
                self._threads.shutdown(wait=False, cancel_futures=True)
        return list(self._followed.values())

    def _look_for_clusters(self) -> None:
        """Keeps the known clusters while nothing answers."""
        if time.monotonic() - self._asked_at < LOOK_FOR_CLUSTERS_S or (self._followed and not self._goes_on):
            return
        self._asked_at = time.monotonic()
        try:
            found = self._ask()
        except Exception as error:
            if not self._followed:
                raise
            log.warning(
                "control does not list the clusters now; the audit follows the clusters of its last list",
                reason=first_line(error),
            )
            return
        for name in self._followed.keys() - found.keys():
            gone = self._followed.pop(name)
            if gone.query is not None:
                gone.query.stop()
            log.info("a cluster is not read any more", cluster=name)
        for name, new in found.items():
            known = self._followed.get(name)
            if known is not None and known.source == new.source:
                continue
            if known is not None and known.query is not None:  # other addresses, or other secrets
                known.query.stop()
            self._followed[name] = new
        self._attempt(lambda: self._progress.forget_others(set(self._followed)))

    def _keep_going(self, each: Followed) -> None:
        """Begins a stream that has not begun, and restarts a failed stream after its pause."""
        if each.query is not None and not each.query.isActive:
            failure = each.query.exception()
            if failure is not None:
                self._note_failure(each, failure)
            elif not self._goes_on:
                each.problem = ""
                each.has_ended = True
            else:
                each.query = None
        if each.query is not None or each.has_ended or time.monotonic() < each.retry_at:
            return
        if any(other.is_beginning for other in self._followed.values()):
            return
        each.begun_at = time.monotonic()
        try:
            each.query = each.begin(each)
        except FencedError:
            raise
        except Exception as failure:  # noqa: BLE001  # any error: the trouble of one cluster does not affect the others
            self._note_failure(each, failure)

    def _note_failure(self, each: Followed, failure: Exception) -> None:
        each.failed = each.failed + 1 if each.batches == each.batches_then else 0
        each.batches_then = each.batches
        each.failures += 1
        each.query = None
        pause_s = pause(each.failed + 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        each.retry_at = time.monotonic() + pause_s
        ours = our_sentence(failure)
        each.problem = ours or first_line(failure)
        each.has_ended = not self._goes_on and (ours is not None or each.failed == ATTEMPTS)
        each.told_at = float("-inf")
        log.warning("a stream has failed", cluster=each.name, reason=each.problem, again_in_seconds=round(pause_s, 1))

    def _tell(self, each: Followed) -> None:
        """Reports the progress of a cluster when it is due and the cluster has returned its end offsets."""
        if each.looking is None:
            is_time = time.monotonic() - each.told_at > self._heartbeat_s or each.has_news.is_set()
            if is_time:
                each.has_news.clear()
                each.told_at = time.monotonic()
                each.looked = datetime.now(UTC)
                each.looking = self._threads.submit(each.source.logs)
        elif each.looking.done():
            looking, each.looking = each.looking, None
            self._tell_of(each, looking)

    def _tell_of(self, each: Followed, looking: Future[Mapping[str, TopicLog]]) -> None:
        try:
            logs, away = looking.result(), ""
        except StreamError as error:
            logs, away = {}, str(error)
        self._read_position(each)
        if not away:  # without the logs nobody knows what is lost
            self._accept(each, logs)
        if each.query is not None and each.query.isActive and each.has_looked:
            each.problem = ""
        newest = {(f"{each.name}/{topic}", number): when for (topic, number), when in each.newest.items()}
        states = partition_states(each.position, logs, each.looked, newest)
        shown = {(topic.partition("/")[2], number): state for (topic, number), state in states.items()}
        self._attempt(lambda: self._progress.tell(each.name, shown, each.trouble or away))
        _tell_serve(each, states.values(), lag_of(each.position, logs), self._stuck_s())

    def _accept(self, each: Followed, logs: Mapping[str, TopicLog]) -> None:
        """Restarts the stream so that it goes on behind the lost records that an operator has accepted.

        The stream begins anew once it is past the gap: a later loss is not accepted.
        """
        problems = each.source.problems(each.position, logs)
        lost = {topic: str(error) for topic, error in problems.items() if isinstance(error, RecordsLostError)}
        for topic in lost.keys() - each.lost.keys():
            log.warning("a topic is set apart; the others are read", topic=topic, problem=lost[topic])
        each.lost = lost
        accepted = self._acceptances.open_for({topic for one in self._followed.values() for topic in one.topics})
        for topic in (accepted.keys() & logs.keys() & each.topics) - each.lost.keys():
            for acceptance in accepted[topic]:
                self._acceptances.answer(acceptance, each.giving_up.get(topic, given_up([])))
            each.giving_up.pop(topic, None)
        wanted = frozenset(accepted.keys() & each.lost.keys())
        if wanted == each.accepting:
            return
        spans = lost_spans(each.position, logs)
        for topic in wanted - each.accepting:
            each.giving_up[topic] = given_up([span for span in spans if span.topic == topic])
        each.accepting, each.retry_at = wanted, 0.0
        if each.query is not None:
            each.query.stop()
            each.query = None

    def _stuck_s(self) -> float:
        """Seconds without progress, of the stream that has worked on a batch without progress for the longest time."""
        watched = (each.hangs.stuck_s(each.query) for each in self._followed.values() if each.hangs is not None)
        return max(watched, default=0.0)

    def _tell_last(self) -> None:
        """Reports the progress after the last batches."""
        for each in self._followed.values():
            each.looked = datetime.now(UTC)
            each.looking = self._threads.submit(each.source.logs)
        looks = [each.looking for each in self._followed.values() if each.looking is not None]
        wait(looks, LAST_LOOK_S if self._goes_on else None)
        for each in self._followed.values():
            if each.looking is not None and each.looking.done():
                self._tell_of(each, each.looking)

    def _read_position(self, each: Followed) -> None:
        before, each.position = each.position, each.read_position()
        for topic in before.keys() & each.position.keys():
            if before[topic].topic_id != each.position[topic].topic_id:
                log.warning("a topic was created again; it is read from its start", cluster=each.name, topic=topic)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Logs an error of PostgreSQL.

        The next report follows soon, and control detects the outage of PostgreSQL itself.
        """
        try:
            work()
        except psycopg.Error as error:
            log.warning("the audit cannot store its progress in PostgreSQL", reason=first_line(error))


def _tell_serve(each: Followed, states: Collection[PartitionState], lag: Lag, stuck_s: float) -> None:
    """Reports the progress of a stream to `serve`."""
    done = each.records, each.malformed, each.failures
    records, malformed, failures = (now - before for now, before in zip(done, each.reported, strict=True))
    each.reported = done
    times = [state.complete_until for state in states]
    complete_until = None if None in times else min((time for time in times if time), default=None)
    job_reports.tell(
        job_reports.JobReport(
            "audit",
            each.name,
            records=records,
            refused=malformed,
            failures=failures,
            behind=sum(state.log_end - state.next_offset for state in states) if states else None,
            spare=lag.spare,
            complete_until=complete_until.timestamp() if complete_until else None,
            stuck_s=stuck_s,
            apart=each.lost,
            lost=list(each.lost),
        )
    )
