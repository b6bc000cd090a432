"""Keeps stores up to date from their changelogs: before a task begins, and while another instance has the task.

Each topology has one such thread, with a client of its own. A worker asks the thread for the stores of a task, and gets
them when they have reached the changelog's end. A store belongs to that worker until the worker gives it back.

When a store is up to date
1. The worker reads the group's committed offsets *before* it asks, as a stable read: no transaction that would commit
   other offsets is open any more. Then this thread reads the changelog's end, including open transactions.
2. The thread reads only committed records, up to that end. If the owner before died with an open transaction, the
   thread waits until Kafka has ended it: the store gets all changes of the transaction, or none.
3. A checkpoint outside the changelog is useless. So is a checkpoint older than the time for which the changelog keeps
   the removal of entries. In both cases the store is made anew.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from services.sidecar.streams.plan import Plan
from services.sidecar.streams.state import EntryKey
from services.sidecar.streams.store import Store
from services.sidecar.telemetry import metrics
from services.sidecar.telemetry.client_errors import ClientErrors

BATCH = 1_000
STEP_SECONDS = 0.1
"""The wait of one read, and so the longest wait of a request."""
ASK_SECONDS = 5.0
RETRY_SECONDS = 1.0
WAITING_ORDERS = 10_000
"""A bound above the number of tasks of any topology: each task has one order at a time."""

log = structlog.get_logger(__name__)


class StorePlace(NamedTuple):
    """One partition of a store."""

    store: str
    partition: int


@dataclass(slots=True)
class _Followed:
    """A store that is being kept up to date."""

    store: Store
    end: int | None = None
    """The changelog offset that the store has to reach; None for a standby store."""
    done: Future[Store] | None = None
    at: int = 0


@dataclass(slots=True)
class Followed:
    """The present status of the follower."""

    restoring: int = 0
    """The number of stores that a worker waits for."""
    standby: int = 0
    restored_records: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Order:
    run: Callable[[], None]
    failed: Callable[[BaseException], None] = field(default=lambda error: None)


class Follower:
    """The follower of one running topology."""

    def __init__(
        self, plan: Plan, properties: Mapping[str, Any], folder: Path, *, max_store_bytes: int, keep_ready: bool
    ) -> None:
        """`keep_ready`: whether stores that no worker asks for are followed too."""
        self._plan = plan
        self._folder = folder
        self._max_store_bytes = max_store_bytes
        self._keep_ready = keep_ready
        self._topics = {plan.changelog(name): name for name in plan.stores}
        self._properties = {
            **properties,
            "group.id": f"{plan.group}-changelogs",  # this client commits no offsets
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "error_cb": ClientErrors("streams"),
        }
        self._followed: dict[StorePlace, _Followed] = {}
        self._orders: queue.Queue[_Order] = queue.Queue(WAITING_ORDERS)
        self._ending = threading.Event()
        self.status = Followed()
        self._thread = threading.Thread(target=self._run, name=f"changelogs {plan.name}", daemon=True)

    def start(self, places: Iterable[StorePlace]) -> None:
        """Starts the thread. `places`: all partitions of all stores."""
        if self._keep_ready:
            for place in places:
                self.give_back(place)
        self._thread.start()

    def path_of(self, place: StorePlace) -> Path:
        return self._folder / f"{place.store}-{place.partition}.sqlite"

    def ask_for(self, place: StorePlace) -> Future[Store]:
        """The store, once it is up to date. Any thread may call this."""
        done: Future[Store] = Future()
        self._orders.put(_Order(lambda: self._restore(place, done), lambda error: _fail(done, error)))
        return done

    def give_back(self, place: StorePlace) -> None:
        """Takes back a store that its worker has closed."""
        if self._keep_ready:
            self._orders.put(_Order(lambda: self._follow(place, _Followed(self._opened(place)))))

    def stop(self, timeout: float) -> None:
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    # on its thread

    def _run(self) -> None:
        consumer = Consumer(self._properties)
        self._consumer = consumer
        try:
            while not self._ending.is_set():
                self._obey()
                try:
                    self._read()
                except KafkaException as error:
                    self._give_up_all(error.args[0].str())
                except Exception as error:  # this thread must not end while a worker waits for a store
                    log.exception("stores cannot be brought up to date", topology=self._plan.name)
                    self._give_up_all(repr(error))
        finally:
            for followed in self._followed.values():
                if followed.done is not None:
                    followed.done.cancel()
                followed.store.close()
            consumer.close()

    def _obey(self) -> None:
        while True:
            try:
                order = self._orders.get(timeout=0 if self._followed else STEP_SECONDS)
            except queue.Empty:
                return
            try:
                order.run()
                self.status.failure = ""
            except Exception as error:  # noqa: BLE001  # the worker that waits for the store gets the error
                self.status.failure = str(error)
                log.warning("a store cannot be brought up to date", topology=self._plan.name, reason=str(error))
                order.failed(error)

    def _restore(self, place: StorePlace, done: Future[Store]) -> None:
        if done.cancelled():
            return
        followed = self._followed.get(place) or _Followed(self._opened(place))
        followed.done = done
        try:
            self._follow(place, followed)
        except BaseException:
            self._leave(place)
            followed.store.close()
            raise

    def _follow(self, place: StorePlace, followed: _Followed) -> None:
        """Follows the changelog of a store, from the store's checkpoint on."""
        partition = TopicPartition(self._plan.changelog(place.store), place.partition)
        low, high = self._consumer.get_watermark_offsets(partition, timeout=ASK_SECONDS)
        if place not in self._followed:
            checkpoint = followed.store.checkpoint
            if checkpoint is None or not low <= checkpoint <= high or followed.store.is_stale:
                if checkpoint is not None:
                    log.info("a store is made anew", store=str(followed.store.path), checkpoint=checkpoint, first=low)
                followed.store.clear()
                checkpoint = low
            followed.at = checkpoint
            partition.offset = checkpoint if checkpoint > 0 else OFFSET_BEGINNING
            if followed.done is None or followed.at < high:
                self._followed[place] = followed
                self._consumer.incremental_assign([partition])
        if followed.done is not None:
            followed.end = high
            self._finish_if_there(place, followed)
        self._count()

    def _read(self) -> None:
        if not self._followed:
            return
        messages = self._consumer.consume(BATCH, timeout=STEP_SECONDS)
        places: dict[StorePlace, list[Message]] = {}
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)  # of one topic or of none: a worker that waits for a store asks again
            place = StorePlace(self._topics[message.topic() or ""], message.partition() or 0)
            places.setdefault(place, []).append(message)
        for place, found in places.items():
            followed = self._followed.get(place)
            if followed is not None:
                self._bring_on(place, followed, found)

    def _bring_on(self, place: StorePlace, followed: _Followed, messages: list[Message]) -> None:
        try:
            changes: dict[EntryKey, bytes | None] = {}
            for message in messages:
                self._take(followed, message, changes)
            if changes:
                followed.store.apply(changes, followed.at)
            self._finish_if_there(place, followed)
        except (sqlite3.Error, ValueError) as error:
            self._give_up(place, followed, error)
            return
        self.status.restored_records += len(changes)
        metrics.stream_restored_records.labels(self._plan.name).inc(len(changes))

    def _give_up(self, place: StorePlace, followed: _Followed, error: Exception) -> None:
        """Gives up a store that cannot be brought up to date; its worker gets the reason, and may ask again."""
        self._leave(place)
        self._tell(place, followed, str(error))

    def _tell(self, place: StorePlace, followed: _Followed, reason: str) -> None:
        text = f"store {place.store!r}, partition {place.partition}: {reason}"
        log.warning("a store cannot be brought up to date", topology=self._plan.name, reason=text)
        self.status.failure = text
        followed.store.close()
        if followed.done is not None:
            _fail(followed.done, OSError(text))

    def _give_up_all(self, reason: str) -> None:
        for place, followed in list(self._followed.items()):
            self._followed.pop(place)
            self._tell(place, followed, reason)
        self._consumer.unassign()
        self._count()

    def _take(self, followed: _Followed, message: Message, changes: dict[EntryKey, bytes | None]) -> None:
        error = message.error()
        if error is None:
            followed.at = (message.offset() or 0) + 1
            changes[EntryKey.from_kafka(message.key() or b"")] = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:
            # the end is past the markers of transactions, which are no records
            followed.at = max(followed.at, message.offset() or 0)

    def _finish_if_there(self, place: StorePlace, followed: _Followed) -> None:
        if followed.done is None or followed.end is None or followed.at < followed.end:
            return
        if followed.done.cancelled() and self._keep_ready:
            followed.done = None
            return
        self._leave(place)
        followed.store.apply({}, followed.at)
        if followed.done.set_running_or_notify_cancel():
            followed.done.set_result(followed.store)
        else:
            followed.store.close()

    def _leave(self, place: StorePlace) -> None:
        if self._followed.pop(place, None) is not None:
            self._consumer.incremental_unassign([TopicPartition(self._plan.changelog(place.store), place.partition)])
        self._count()

    def _opened(self, place: StorePlace) -> Store:
        return Store(self.path_of(place), self._plan.stores[place.store], max_bytes=self._max_store_bytes)

    def _count(self) -> None:
        self.status.restoring = sum(1 for one in self._followed.values() if one.done is not None)
        self.status.standby = len(self._followed) - self.status.restoring


def _fail(done: Future[Store], error: BaseException) -> None:
    if done.set_running_or_notify_cancel():
        done.set_exception(error if not isinstance(error, KafkaException) else OSError(error.args[0].str()))
