"""A stream for each cluster, side by side in one Spark session, for as long as the job runs.

1. A stream that fails is started again, a little later each time, and goes on where its checkpoint says. The others
   do not notice. What is the matter is told in PostgreSQL, where control finds it, and in the log. They begin one after
   the other, so that a small machine can start their processes in time.
2. Clusters are asked for again and again: a new one gets a stream, one that is gone loses it.
3. How far a stream is comes from its last batch; where the topics end is asked of their cluster, each on a thread of
   its own, so that one that does not answer keeps no other from telling.
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
from services.pipeline import job_reports
from services.pipeline.acceptances import Acceptances, given_up
from services.pipeline.auditing.progress import PartitionState, Place, ProgressTable, partition_states
from services.pipeline.kafka_source import KafkaSource
from services.pipeline.positions import Lag, Position, RecordsLostError, StreamError, TopicLog, lag_of, lost_spans
from services.pipeline.session import first_line, our_sentence

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from services.pipeline.hang_watch import HangWatch

POLL_S = 0.3  # how soon an order to stop, and the end of a batch, are seen
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
LOOK_FOR_CLUSTERS_S = 30.0
ATTEMPTS = 5
"""In a row, of a stream that ends by itself, where it is not our own sentence that says why: a busy machine, PostgreSQL
that starts again.
"""
START_S = 15.0
"""Streams begin one after the other, or after so long: Spark waits 10 s for a stream's Python process, no longer."""
BEGINNINGS = ("Initializing", "Getting offsets")
"""How Spark says that a stream has not looked yet."""
THREADS = 16
LAST_LOOK_S = 5.0
"""How long clusters may take to say where their topics end, when the job is told to stop."""

NEVER = datetime.min.replace(tzinfo=UTC)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Followed:
    """One cluster."""

    name: str
    source: KafkaSource
    begin: Callable[[Followed], StreamingQuery]
    """Starts its stream."""
    read_position: Callable[[], Position]
    """Where it stands."""
    query: StreamingQuery | None = None
    begun_at: float = float("-inf")
    failed: int = 0
    """In a row, without a batch between."""
    batches_then: int = 0
    """Batches when it failed last."""
    retry_at: float = 0.0
    has_ended: bool = False
    """Where streams end by themselves: it has, or was given up."""
    problem: str = ""
    newest: dict[Place, datetime] = field(default_factory=dict)
    """Kafka's time of the last record of each partition that is stored."""
    records: int = 0
    malformed: int = 0
    stored: int = 0
    batches: int = 0
    failures: int = 0
    reported: tuple[int, int, int] = (0, 0, 0)
    """Records, malformed ones and failures that serve has heard of."""
    has_news: threading.Event = field(default_factory=threading.Event)
    """Set when a batch is stored."""
    position: Position = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    """Topics of which retention took records before they were read: its stream does not go on by itself."""
    accepting: frozenset[str] = frozenset()
    """Those of them without which its stream goes on."""
    giving_up: dict[str, str] = field(default_factory=dict)
    """What that costs, as sentences."""
    hangs: HangWatch | None = None
    looking: Future[Mapping[str, TopicLog]] | None = None
    looked: datetime = NEVER
    told_at: float = float("-inf")

    @property
    def topics(self) -> set[str]:
        """As its position names them."""
        return {f"{self.name}/{topic}" for topic in self.source.topics}

    @property
    def has_looked(self) -> bool:
        """Its stream has found out what there is to read, or that there is nothing."""
        return self.query is not None and not str(self.query.status["message"]).startswith(BEGINNINGS)

    @property
    def is_beginning(self) -> bool:
        is_young = time.monotonic() - self.begun_at < START_S
        return is_young and self.query is not None and self.query.isActive and not self.has_looked


class Following:
    """All clusters."""

    def __init__(
        self,
        clusters: Callable[[], Mapping[str, Followed]],
        progress: ProgressTable,
        heartbeat: timedelta,
        *,
        goes_on: bool,
        acceptances: Acceptances,
    ) -> None:
        """`clusters` tells those that there are now; `goes_on`: whether streams end only when they are told to."""
        self._ask = clusters
        self._acceptances = acceptances
        self._progress = progress
        self._heartbeat_s = heartbeat.total_seconds()
        self._goes_on = goes_on
        self._followed: dict[str, Followed] = {}
        self._asked_at = float("-inf")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="audit progress")

    def run(self, stopping: threading.Event) -> list[Followed]:
        """Until all streams have ended, or it is told to stop. What became of each cluster."""
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
            self._tell_last()
            self._threads.shutdown(wait=False, cancel_futures=True)
        return list(self._followed.values())

    def _look_for_clusters(self) -> None:
        """What was known stays when nobody tells."""
        if time.monotonic() - self._asked_at < LOOK_FOR_CLUSTERS_S or (self._followed and not self._goes_on):
            return
        self._asked_at = time.monotonic()
        try:
            found = self._ask()
        except Exception as error:
            if not self._followed:
                raise
            log.warning("the clusters are not told now; those that were known are read", reason=first_line(error))
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
        """Begins a stream that has not begun, and one that has failed when its pause is over."""
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
        except Exception as failure:  # noqa: BLE001  # whatever it is: one cluster's trouble is not another's
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
        """When it is time, and the cluster has said where its topics end."""
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
        self._accept(each, logs)
        if each.query is not None and each.query.isActive and each.has_looked:
            each.problem = ""
        newest = {(f"{each.name}/{topic}", number): when for (topic, number), when in each.newest.items()}
        states = partition_states(each.position, logs, each.looked, newest)
        shown = {(topic.partition("/")[2], number): state for (topic, number), state in states.items()}
        self._attempt(lambda: self._progress.tell(each.name, shown, each.problem or away))
        _tell_serve(each, states.values(), lag_of(each.position, logs), self._stuck_s())

    def _accept(self, each: Followed, logs: Mapping[str, TopicLog]) -> None:
        """The stream goes on without what an operator has given up, and begins anew when that is behind it: a later
        loss is not accepted.
        """
        problems = each.source.problems(each.position, logs)
        each.lost = {topic: str(error) for topic, error in problems.items() if isinstance(error, RecordsLostError)}
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
        """Of the stream that has been at work without progress for the longest time."""
        watched = (each.hangs.stuck_s(each.query) for each in self._followed.values() if each.hangs is not None)
        return max(watched, default=0.0)

    def _tell_last(self) -> None:
        """What the last batches came to."""
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
        """It is told again soon; while PostgreSQL is away, control says so itself."""
        try:
            work()
        except psycopg.Error as error:
            log.warning("how far the audit is can't be told", reason=first_line(error))


def _tell_serve(each: Followed, states: Collection[PartitionState], lag: Lag, stuck_s: float) -> None:
    """How far its stream is."""
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
