"""One thread of a topology: reads records, runs its tasks, and writes results and offsets in one transaction.

A round
1. The worker gives the records that have arrived to their tasks, and asks the hooks; nothing is written.
2. Records of operators, changes of stores (changelogs), dead letters and the offsets go to Kafka in one transaction,
   all at once. So no transaction is open while the worker waits for a task or a hook.
3. When the transaction is committed, stores on disk get the changes, and audit gets the records.
A round that fails at any point leaves no trace: its transaction is aborted. Tasks begin again at the end of the round
before, after a pause that grows. If the outcome of a commit is unknown, the new producer's start ends the transaction,
and the committed offsets show the outcome.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from enum import Enum

import structlog
from confluent_kafka import KafkaException, Message, TopicPartition

from mesh.pauses import pause
from mesh.schemas.schema import RegistryUnavailableError
from services.sidecar.producing.transactional_client import (
    Elsewhere,
    GroupOffsets,
    Lost,
    NotWritten,
    TransactionalClient,
)
from services.sidecar.streams.assignment import Assignment
from services.sidecar.streams.plan import Part
from services.sidecar.streams.processing import ASK_SECONDS, GivenUpError, HaltError, Processing, Tools, WorkerOptions
from services.sidecar.streams.records import TopologyError
from services.sidecar.streams.round_reports import audit, count
from services.sidecar.streams.rounds import (
    OpenTask,
    Outcomes,
    TaskId,
    before,
    by_time,
    entries_of,
    keep,
    refused_by,
)
from services.sidecar.streams.store import Store
from services.sidecar.streams.task import Task
from services.sidecar.streams.too_large import TooLarge
from services.sidecar.telemetry import metrics

IDLE_SECONDS = 0.2
"""The wait of an idle worker for a record, and so the longest time until it notices that it shall stop."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.4, 10.0
LAG_SECONDS = 1.0

log = structlog.get_logger(__name__)


class State(Enum):
    """The state of a topology, or of one of its workers."""

    REBALANCING = "rebalancing"
    RESTORING = "restoring"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"


class _AbortedError(Exception):
    """The transaction of a round was aborted."""


class _TooLargeError(Exception):
    """The transaction of a round was aborted, and the round will be smaller when it begins again."""


class Worker:
    """One worker; call `start`, then `stop`."""

    def __init__(self, tools: Tools, options: WorkerOptions, transactional_id: str) -> None:
        self._tools = tools
        self._plan = tools.plan
        self._options = options
        self._transactional_id = transactional_id
        self._stopping = threading.Event()
        self._assignment: Assignment | None = None
        self._client: TransactionalClient | None = None
        self._failure = ""
        self._is_over = False
        self._too_large = TooLarge()
        self._processing = Processing(tools, options, self._too_large, self._stopping)
        self._failures = 0
        self._lag_at = 0.0
        self.lag = 0
        self.committed: dict[tuple[str, int], int] = {}
        """The next offset of each partition, by the last committed rounds."""
        self._thread = threading.Thread(target=self._run, name=f"stream {transactional_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        """Asks the worker to end after its round."""
        self._stopping.set()

    def stop(self, timeout: float) -> None:
        """Ends the worker after its round; a round that does not end in time is aborted."""
        self.interrupt()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive() and (client := self._client) is not None:
            client.interrupt()
            self._thread.join(timeout)

    @property
    def state(self) -> State:
        assignment = self._assignment
        if self._failure:
            return State.FAILED
        if self._is_over:
            return State.STOPPED
        if assignment is None or not assignment.is_joined:
            return State.REBALANCING
        return State.RESTORING if assignment.opening else State.RUNNING

    @property
    def failure(self) -> str:
        """The reason of the last failure; the worker may still be retrying."""
        return self._failure

    @property
    def tasks(self) -> list[TaskId]:
        return [] if self._assignment is None else list(self._assignment.tasks)

    @property
    def opening(self) -> list[TaskId]:
        return [] if self._assignment is None else self._assignment.opening

    # on its thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._work()
                except (TopologyError, HaltError) as error:
                    self._failure = str(error)
                    log.error("a topology has stopped", topology=self._plan.name, reason=str(error))
                    return
                except Exception as error:
                    self._failed(error)
                    log.exception("a worker of a topology begins anew", topology=self._plan.name)
                    self._stopping.wait(self._pause())
                finally:
                    self._put_away()
        finally:
            self._is_over = True

    def _work(self) -> None:
        """Works until the worker stops, or the consumer cannot go on."""
        self._assignment = assignment = Assignment(
            self._plan, self._options.consumer, self._tools.follower, self._task_of
        )
        while not self._stopping.is_set():
            try:
                self._turn(assignment)
            except GivenUpError:
                assignment.reopen()
            except _TooLargeError as error:
                log.warning("a round writes less, and begins again", topology=self._plan.name, reason=str(error))
                self._close_client()  # librdkafka writes no transaction after one with a batch that was too large
                assignment.reopen()
            except (_AbortedError, Elsewhere, Lost, RegistryUnavailableError, sqlite3.Error, OSError) as error:
                self._begin_again(assignment, error)
            self._measure(assignment)

    def _turn(self, assignment: Assignment) -> None:
        assignment.advance()
        if self._tools.audit.is_full:
            assignment.keep_alive()
            self._stopping.wait(ASK_SECONDS)
            return
        messages = assignment.fetch(self._options.limits, IDLE_SECONDS)
        if not messages:
            if not assignment.opening:
                self._failure = ""  # no record waits, and no task is opening
            return
        by_task: dict[TaskId, list[Message]] = {}
        for message in messages:
            by_task.setdefault(assignment.task_of(message), []).append(message)
        with metrics.stream_round_seconds.labels(self._plan.name).time():
            self._round(assignment, {id_: list(by_time(found)) for id_, found in by_task.items()})

    def _round(self, assignment: Assignment, records: Mapping[TaskId, Sequence[Message]]) -> None:
        tasks = [assignment.tasks[id_] for id_ in records]
        try:
            self._commit(assignment, tasks, self._processing.outcomes(assignment, tasks, records))
        except HaltError as halt:
            _forget(tasks)
            if kept := before(records, halt.id, halt.record):
                self._round(assignment, kept)
            raise
        finally:
            _forget(tasks)

    def _commit(self, assignment: Assignment, tasks: Sequence[OpenTask], outcomes: Outcomes) -> None:
        entries = entries_of(self._plan, tasks, outcomes, self._options.dead_letters, self._too_large)
        offsets = [TopicPartition(*place, offset) for place, offset in outcomes.offsets.items()]
        try:
            written = self._producer().write(
                entries.entries, self._options.transaction_seconds, consumed=GroupOffsets(offsets, assignment.group)
            )
        except NotWritten as refused:
            is_smaller = self._too_large.learn(entries.entries, entries.origins, refused.outcomes)
            raise (_TooLargeError if is_smaller else _AbortedError)(refused_by(entries, refused)) from None
        keep(tasks, entries, written)
        self._too_large.committed(outcomes.offsets)
        self.committed |= outcomes.offsets
        self._failures, self._failure = 0, ""
        count(self._plan.name, tasks, outcomes, entries)
        audit(self._tools.audit, outcomes, entries, written)

    def _producer(self) -> TransactionalClient:
        if self._client is None:
            client = TransactionalClient(self._options.producer(self._transactional_id))
            try:
                client.open(self._options.transaction_seconds)
            except BaseException:
                client.close()
                raise
            self._client = client
        return self._client

    def _begin_again(self, assignment: Assignment, error: Exception) -> None:
        """Begins again after a failed round: with a new producer, at the end of the round before."""
        self._failed(error)
        self._close_client()
        assignment.reopen()
        until = time.monotonic() + self._pause()
        while time.monotonic() < until and not self._stopping.wait(IDLE_SECONDS):
            assignment.keep_alive()

    def _pause(self) -> float:
        """The pause in seconds, longer with each failure in a row."""
        return pause(self._failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error) or type(error).__name__
        self._failure = f"trying again: {text}"
        metrics.stream_rounds.labels(self._plan.name, "failed").inc()
        log.warning("a round of a topology failed", topology=self._plan.name, reason=text, failures=self._failures)

    def _put_away(self) -> None:
        assignment, self._assignment = self._assignment, None
        if assignment is not None:
            assignment.close()
        self._close_client()

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _task_of(self, part: Part, stores: Mapping[str, Store]) -> Task:
        return Task(part, stores, self._tools.encode, self._options.max_value_bytes)

    def _measure(self, assignment: Assignment) -> None:
        now = time.monotonic()
        if now - self._lag_at >= LAG_SECONDS:
            self._lag_at = now
            self.lag = assignment.lag()


def _forget(tasks: Sequence[OpenTask]) -> None:
    for one in tasks:
        one.task.end()
