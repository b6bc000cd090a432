"""Running clients of the libraries for Python (see `load.py`): some in threads, aiokafka in tasks."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import aiokafka
import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.confluent.driver import commit, received
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS
from tests.clients.ledger import Acked
from tests.clients.load import KEYS, Journal, Running

T = TypeVar("T")

POLL_SECONDS = 0.1
COMMIT_EVERY_SECONDS = 0.5
METADATA_MS = 2_000
JOIN_MS = 3_000
"""kafka-python 3.0 forgets a join for new metadata if its SyncGroup is answered between two polls. It has no partitions
and sends no heartbeats from then on. So one poll is longer than a join."""

COMMIT_LATER = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)
CONNECTION_LOST = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""What librdkafka tells an application for its information; it connects again by itself."""


class _Thread:
    """A thread around a client; what it tells is handed to the event loop."""

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
        except (KafkaException, kafka.errors.KafkaError) as error:
            self._tell(self.journal.add_error, repr(error))

    def _tell(self, take: Callable[[T], None], what: T) -> None:
        self._loop.call_soon_threadsafe(take, what)


class _Librdkafka(_Thread):
    def _tell_error(self, error: KafkaError) -> None:
        if not self.journal.connections_may_break or error.code() not in CONNECTION_LOST:
            self._tell(self.journal.add_error, f"{error.name()}: {error.str()}")


class LibrdkafkaProducer(_Librdkafka):
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
            self._tell(self.journal.add_error, told)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._tell_error(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes) and partition is not None
        # a repeat of what is stored already is acknowledged without saying where
        known = Acked.UNKNOWN_OFFSET if offset is None else offset
        self._tell(self.journal.add_acked, Acked(value.decode(), partition, known))


class LibrdkafkaConsumer(_Librdkafka):
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
                    self._tell(self.journal.add_received, record.value)
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
            # Or a broker stood still, and its coordinator has to load again: Java's consumer tries again by itself.
            if error.args[0].code() not in COMMIT_LATER and not self.journal.commits_may_fail:
                raise


class LibrdkafkaLoad:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def producer(self, topic: str, rate: int) -> Running:
        return LibrdkafkaProducer(self._bootstrap, topic, rate)

    async def consumer(self, topic: str, group: str) -> Running:
        return LibrdkafkaConsumer(self._bootstrap, topic, group)


class _KafkaPythonProducer(_Thread):
    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = rate
        super().__init__("kafka-python")

    def _run(self) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True, linger_ms=5)
        start = time.monotonic()
        sent = 0
        while not self._stopping.is_set():
            identifier = f"{self.journal.client}-{sent}"
            future = producer.send(self._topic, identifier.encode(), f"key-{sent % KEYS}".encode())
            future.add_callback(self._delivered, identifier)
            future.add_errback(lambda error: self._tell(self.journal.add_error, repr(error)))
            sent += 1
            self._stopping.wait(start + sent / self._rate - time.monotonic())
        producer.flush(OPERATION_TIMEOUT_SECONDS)
        producer.close(OPERATION_TIMEOUT_SECONDS)

    def _delivered(self, identifier: str, metadata: kafka.producer.future.RecordMetadata) -> None:
        self._tell(self.journal.add_acked, Acked(identifier, metadata.partition, metadata.offset))


class _KafkaPythonConsumer(_Thread):
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        super().__init__("kafka-python consumer")

    def _run(self) -> None:
        consumer = kafka.KafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=int(COMMIT_EVERY_SECONDS * 1000),
            # as its group's leader it may share out partitions before it has heard of the topic; it looks again when
            # its metadata are old, in five minutes
            metadata_max_age_ms=METADATA_MS,
        )
        try:
            while not self._stopping.is_set():
                for records in consumer.poll(timeout_ms=JOIN_MS).values():
                    for record in records:
                        self._tell(self.journal.add_received, record.value.decode())
        finally:
            consumer.close()


class KafkaPythonLoad:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def producer(self, topic: str, rate: int) -> Running:
        return _KafkaPythonProducer(self._bootstrap, topic, rate)

    async def consumer(self, topic: str, group: str) -> Running:
        return _KafkaPythonConsumer(self._bootstrap, topic, group)


class _Task:
    """A task around an aiokafka client."""

    def __init__(self, name: str) -> None:
        self.journal = Journal(name)
        self._stopping = asyncio.Event()
        self._task = asyncio.create_task(self._run_and_report())

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.wait_for(self._task, OPERATION_TIMEOUT_SECONDS * 2)

    async def _run(self) -> None:
        raise NotImplementedError

    async def _run_and_report(self) -> None:
        try:
            await self._run()
        except aiokafka.errors.KafkaError as error:
            self.journal.add_error(repr(error))


class _AiokafkaProducer(_Task):
    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = rate
        super().__init__("aiokafka")

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True) as producer:
            start = loop.time()
            sent = 0
            while not self._stopping.is_set():
                identifier = f"{self.journal.client}-{sent}"
                future = await producer.send(self._topic, identifier.encode(), f"key-{sent % KEYS}".encode())
                future.add_done_callback(functools.partial(self._delivered, identifier))
                sent += 1
                await asyncio.sleep(start + sent / self._rate - loop.time())

    def _delivered(self, identifier: str, future: asyncio.Future[aiokafka.structs.RecordMetadata]) -> None:
        error = future.exception()
        if error is not None:
            self.journal.add_error(repr(error))
        else:
            metadata = future.result()
            self.journal.add_acked(Acked(identifier, metadata.partition, metadata.offset))


class _AiokafkaConsumer(_Task):
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        super().__init__("aiokafka consumer")

    async def _run(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=int(COMMIT_EVERY_SECONDS * 1000),
        )
        async with consumer:
            while not self._stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))).values():
                    for record in records:
                        self.journal.add_received(record.value.decode())


class AiokafkaLoad:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def producer(self, topic: str, rate: int) -> Running:
        return _AiokafkaProducer(self._bootstrap, topic, rate)

    async def consumer(self, topic: str, group: str) -> Running:
        return _AiokafkaConsumer(self._bootstrap, topic, group)
