"""Clients that keep running while a test does something to the system, and the journals of what they saw.

Some are programs of other languages (`steered`), the librdkafka ones are threads; all write their journals from the
test's event loop, so a test reads them without locks and awaits any condition over them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.confluent.driver import commit, received
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, Isolation, Sending
from tests.clients.ledger import Acked
from tests.clients.processes import JsonLines
from tests.clients.steered import settings

POLL_SECONDS = 0.1
KEYS = 32
COMMIT_EVERY_SECONDS = 0.5


@dataclass(slots=True)
class Journal:
    """What one client told: acknowledged records, the newest number received of each producer, errors."""

    client: str
    acked: list[Acked] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)
    received: int = 0
    errors: list[str] = field(default_factory=list)
    connections_may_break: bool = False
    """A test restarts what the client is connected to: that a connection broke is no error then."""
    commits_may_fail: bool = False
    """A test takes the cluster of the offsets away: a commit that fails is tried again later then."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add_acked(self, ack: Acked) -> None:
        self.acked.append(ack)
        self._changed.set()

    def add_received(self, identifier: str) -> None:
        producer, _, number = identifier.rpartition("-")
        self.newest[producer] = max(int(number), self.newest.get(producer, -1))
        self.received += 1
        self._changed.set()

    def add_error(self, error: str) -> None:
        self.errors.append(error)
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Returns when the condition over this journal holds; fails at once when the client has reported an error."""
        try:
            async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
                while not condition():
                    assert not self.errors, f"{self.client} reported {self.errors}"
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            state = f"{len(self.acked)} acknowledged, {self.received} received, newest {self.newest}"
            raise AssertionError(f"{self.client}: not in time: {what} ({state})") from None


CONNECTION_LOST = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""What librdkafka tells an application for its information; it connects again by itself."""


class Running(Protocol):
    """A client under way."""

    @property
    def journal(self) -> Journal: ...

    async def stop(self) -> None:
        """Stops in order: a producer is flushed, a consumer leaves its group."""
        ...


class _SteeredLoad:
    """A program of a library (`steered`), carrying out one order until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.journal = Journal(name)
        self._program: JsonLines | None = None

    @classmethod
    async def start(cls, name: str, command: Sequence[str], order: str) -> Self:
        load = cls(name)
        load._program = await JsonLines.start(command, load._on_line)
        await load._program.send(order)
        return load

    async def stop(self) -> None:
        if self._program is not None:
            await self._program.end("stop\n")

    def _on_line(self, line: dict[str, Any]) -> None:
        match line:
            case {"acked": str(identifier), "partition": int(partition), "offset": int(offset)}:
                self.journal.add_acked(Acked(identifier, partition, offset))
            case {"received": str(identifier)}:
                self.journal.add_received(identifier)
            case {"error": _} | {"failed": _}:
                self.journal.add_error(str(line))


async def steered_producer(name: str, command: Sequence[str], topic: str, rate: int) -> Running:
    making = f"topics={topic} ids={name} rate={rate} keys={KEYS}"
    return await _SteeredLoad.start(name, command, f"produce {settings(Sending())} {making}")


async def steered_consumer(name: str, command: Sequence[str], topic: str, group: str) -> Running:
    order = f"consume topics={topic} group={group} isolation={Isolation.READ_UNCOMMITTED}"
    return await _SteeredLoad.start(f"{name} consumer", command, order)


class _LibrdkafkaLoad:
    """A thread around a librdkafka client; what it tells is handed to the event loop."""

    def __init__(self, name: str) -> None:
        self.journal = Journal(name)
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = asyncio.create_task(asyncio.to_thread(self._run_and_report))

    async def stop(self) -> None:
        self._stopping.set()
        # A flush, and then the end of the thread.
        await asyncio.wait_for(self._thread, OPERATION_TIMEOUT_SECONDS * 2)

    def _run(self) -> None:
        raise NotImplementedError

    def _run_and_report(self) -> None:
        try:
            self._run()
        except KafkaException as error:
            self._tell_error(error.args[0])

    def _tell_error(self, error: KafkaError) -> None:
        if self.journal.connections_may_break and error.code() in CONNECTION_LOST:
            return
        self._loop.call_soon_threadsafe(self.journal.add_error, f"{error.name()}: {error.str()}")


class LibrdkafkaProducer(_LibrdkafkaLoad):
    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = rate
        super().__init__("librdkafka")

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "error_cb": self._tell_error,
            }
        )
        start = time.monotonic()
        sent = 0
        while not self._stopping.is_set():
            identifier = f"{self.journal.client}-{sent}"
            producer.produce(self._topic, identifier, f"key-{sent % KEYS}", on_delivery=self._delivered)
            sent += 1
            while (left := start + sent / self._rate - time.monotonic()) > 0 and not self._stopping.is_set():
                producer.poll(min(left, POLL_SECONDS))
        undelivered = producer.flush(OPERATION_TIMEOUT_SECONDS)
        if undelivered:
            told = f"{undelivered} records neither delivered nor failed"
            self._loop.call_soon_threadsafe(self.journal.add_error, told)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._tell_error(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes) and partition is not None
        # a repeat of what is stored already is acknowledged without saying where
        known = Acked.UNKNOWN_OFFSET if offset is None else offset
        self._loop.call_soon_threadsafe(self.journal.add_acked, Acked(value.decode(), partition, known))


class LibrdkafkaConsumer(_LibrdkafkaLoad):
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        super().__init__("librdkafka consumer")

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "error_cb": self._tell_error,
            }
        )
        # Positions are given with each commit: librdkafka's stored offsets never go back, and so would not be committed
        # for a while after the topic moved to a cluster where its offsets are lower.
        uncommitted: dict[tuple[str, int], int] = {}

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            uncommitted.clear()  # these belong to another member now, who may read the last half second again

        try:
            consumer.subscribe([self._topic], on_revoke=revoked)
            commit_due = time.monotonic() + COMMIT_EVERY_SECONDS
            while not self._stopping.is_set():
                message = consumer.poll(POLL_SECONDS)
                if message is not None:
                    record = received(message)
                    uncommitted[record.topic, record.partition] = record.offset + 1
                    self._loop.call_soon_threadsafe(self.journal.add_received, record.value)
                if uncommitted and time.monotonic() >= commit_due:
                    self._commit(consumer, uncommitted)
                    commit_due = time.monotonic() + COMMIT_EVERY_SECONDS
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, positions: dict[tuple[str, int], int]) -> None:
        try:
            commit(consumer, positions)
            positions.clear()
        except KafkaException as error:
            # A member came or went: the next poll takes part in that; positions that stay ours are committed later.
            if error.args[0].code() != KafkaError.REBALANCE_IN_PROGRESS and not self.journal.commits_may_fail:
                raise
