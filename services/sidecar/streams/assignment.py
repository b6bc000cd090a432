"""The partitions that the group assigned to one worker, and the opening of their tasks.

All methods belong to the worker's thread.

How a task opens
1. The group assigns a partition of a topic that leads a part. The worker adds the partitions of the same number of the
   part's other topics, so that joined records are in one place with any assignor. All these partitions rest.
2. The worker reads the group's committed offsets; the read waits until no transaction of an earlier owner is open.
3. The stores of the task are brought up to date; see `store_follower`.
4. The task's partitions begin at the committed offsets: tables first, and the others when the tables have been read to
   their end. Records that were fetched before are dropped.
A task that loses its partition, or whose round was aborted, closes. It begins again with step 2 when the partition is
back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.sidecar.streams.plan import Part, Plan
from services.sidecar.streams.rounds import OpenTask, TaskId
from services.sidecar.streams.store import Store
from services.sidecar.streams.store_follower import Follower, StorePlace
from services.sidecar.streams.task import Task
from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.client_errors import ClientErrors
from services.sidecar.telemetry.client_statistics import client_reports

COMMITTED_SECONDS = 1.0
"""The wait of one request for committed offsets; the request is repeated until Kafka answers."""
CLOSE_SECONDS = 5.0
"""The longest wait for a store that is being handed over."""
PATIENT_CODES = (KafkaError._PARTITION_EOF, KafkaError._MAX_POLL_EXCEEDED)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Opening:
    """A task that is opening."""

    since: float
    committed: list[TopicPartition] | None = None
    stores: dict[str, Future[Store]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """The bounds of one round."""

    records: int
    size: int
    linger_seconds: float


class Assignment:
    """The partitions and tasks of one worker. The constructor joins the group."""

    def __init__(
        self,
        plan: Plan,
        properties: Mapping[str, Any],
        follower: Follower,
        task_of: Callable[[Part, Mapping[str, Store]], Task],
    ) -> None:
        self._plan = plan
        self._follower = follower
        self._task_of = task_of
        self.tasks: dict[TaskId, OpenTask] = {}
        """The open tasks."""
        self._opening: dict[TaskId, _Opening] = {}
        self.is_joined = False
        self.losses = 0
        """The number of times that tasks were taken away."""
        self._rests = False
        self._consumer = Consumer(
            {
                **properties,
                "group.id": plan.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.partition.eof": True,
                "error_cb": self._on_error,
                "stats_cb": client_reports("consumer"),
            }
        )
        self._fatal: KafkaError | None = None
        self._client_errors = ClientErrors("streams")
        self._leads = {topic: part.lead for part in plan.parts for topic in part.sources}
        leads = sorted(set(self._leads.values()))
        self._consumer.subscribe(leads, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    @property
    def opening(self) -> list[TaskId]:
        return list(self._opening)

    @property
    def group(self) -> Any:
        """The worker's group metadata, for transactions."""
        return self._consumer.consumer_group_metadata()

    def advance(self) -> None:
        """Advances the opening of tasks. Raises the error of a task: TopologyError, OSError, KafkaException."""
        for id_, opening in list(self._opening.items()):
            if opening.committed is None and not self._ask_for(id_, opening):
                continue
            if all(one.done() for one in opening.stores.values()):
                self._open(id_, opening)

    def fetch(self, limits: RoundLimits, patience: float) -> list[Message]:
        """Records of open tasks for a round: the first record that arrives, and all that come within the linger."""
        self._wake()
        first = self._consumer.poll(patience if not self._opening else min(patience, limits.linger_seconds))
        if first is None:
            return []
        messages, size = [first], len(first)
        until = time.monotonic() + limits.linger_seconds
        while (room := limits.records - len(messages)) > 0 and size < limits.size:
            some = min(room, (limits.size - size) // (size // len(messages) + 1) + 1)
            found = self._consumer.consume(some, timeout=max(until - time.monotonic(), 0))
            messages += found
            size += sum(map(len, found))
            if len(found) < some:
                break
        return [message for message in messages if self._is_record(message)]

    def keep_alive(self) -> None:
        """Polls for the group while the worker wants no records."""
        if not self._rests:
            self._rests = True
            self._consumer.pause(self._consumer.assignment())
        message = self._consumer.poll(0)
        if message is not None and message.error() is None:
            self.reopen()  # the record came past the pause, and would be lost otherwise

    def reopen(self) -> None:
        """Makes all tasks begin again at the end of the last committed round."""
        for id_ in list(self.tasks):
            self._close(id_)
            self._opening[id_] = _Opening(time.monotonic())
        for id_, opening in self._opening.items():
            _close_all(opening)
            self._opening[id_] = _Opening(opening.since)
        self.losses += 1

    def lag(self) -> int:
        """The number of records that are not read yet, as far as the client knows."""
        lag = 0
        for place in self._consumer.position(self._consumer.assignment()):
            _, high = self._consumer.get_watermark_offsets(place, cached=True)
            lag += max(high - max(place.offset, 0), 0) if high >= 0 else 0
        return lag

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()
        for id_ in [*self.tasks, *self._opening]:
            self._drop(id_)

    def task_of(self, message: Message) -> TaskId:
        """The task of a record."""
        topic = message.topic() or ""
        return TaskId(self._leads[topic], message.partition() or 0)

    def _ask_for(self, id_: TaskId, opening: _Opening) -> bool:
        try:
            opening.committed = self._consumer.committed(self._partitions(id_), timeout=COMMITTED_SECONDS)
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            return False
        for store in self._plan.led_by(id_.lead).stores:
            opening.stores[store] = self._follower.ask_for(StorePlace(store, id_.partition))
        return True

    def _open(self, id_: TaskId, opening: _Opening) -> None:
        part = self._plan.led_by(id_.lead)
        stores = {name: one.result() for name, one in opening.stores.items()}
        assert opening.committed is not None
        del self._opening[id_]
        self.tasks[id_] = task = OpenTask(id_, part, self._task_of(part, stores), stores)
        if part.tables != part.sources.keys():
            task.waits_for_tables = set(part.tables)
        self._consumer.incremental_unassign(self._partitions(id_))
        self._consumer.incremental_assign(opening.committed)
        self._consumer.resume(opening.committed)
        if task.waits_for_tables:
            self._consumer.pause(self._partitions(id_, without=part.tables))
        metrics.stream_restore_seconds.labels(self._plan.name).observe(time.monotonic() - opening.since)

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return self.task_of(message) in self.tasks
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end(message)
        elif error.code() not in PATIENT_CODES:
            self._on_error(error)
        if self._fatal is not None:
            raise KafkaException(self._fatal)
        return False

    def _at_end(self, message: Message) -> None:
        task = self.tasks.get(self.task_of(message))
        if task is None or not task.waits_for_tables:
            return
        task.waits_for_tables.discard(message.topic() or "")
        if not task.waits_for_tables:
            self._consumer.resume(self._partitions(task.id))

    def _wake(self) -> None:
        if self._rests:
            self._rests = False
            for task in self.tasks.values():
                without = task.part.sources.keys() - task.part.tables if task.waits_for_tables else frozenset()
                self._consumer.resume(self._partitions(task.id, without=without))

    def _partitions(self, id_: TaskId, without: Set[str] = frozenset()) -> list[TopicPartition]:
        topics = self._plan.led_by(id_.lead).sources.keys() - without
        return [TopicPartition(topic, id_.partition) for topic in sorted(topics)]

    def _on_assign(self, consumer: Consumer, leads: list[TopicPartition]) -> None:
        metrics.rebalances.labels("assigned").inc()
        self.is_joined = True
        for lead in leads:
            id_ = TaskId(lead.topic, lead.partition)
            partitions = self._partitions(id_)
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)
            self._opening[id_] = _Opening(time.monotonic())

    def _on_revoke(self, consumer: Consumer, leads: list[TopicPartition]) -> None:
        metrics.rebalances.labels("revoked").inc()
        self.losses += 1
        for lead in leads:
            id_ = TaskId(lead.topic, lead.partition)
            self._drop(id_)
            consumer.incremental_unassign(self._partitions(id_))

    def _drop(self, id_: TaskId) -> None:
        """Drops a task that another worker has now."""
        if id_ in self.tasks:
            self._close(id_)
        opening = self._opening.pop(id_, None)
        if opening is not None:
            _close_all(opening)
        for store in self._plan.led_by(id_.lead).stores:
            self._follower.give_back(StorePlace(store, id_.partition))

    def _close(self, id_: TaskId) -> None:
        self.tasks.pop(id_).close()

    def _on_error(self, error: KafkaError) -> None:
        self._client_errors(error)
        if error.fatal():
            self._fatal = error


def _close_all(opening: _Opening) -> None:
    """Closes the stores that are open, or opening."""
    for one in opening.stores.values():
        if not one.cancel() and one.exception(CLOSE_SECONDS) is None:
            one.result().close()
