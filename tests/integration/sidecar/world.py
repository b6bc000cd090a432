"""A sidecar on a thread of its own, called over HTTP as a backend would; and a plain Kafka client to check with."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import Counter, Gauge

from services.sidecar.process import Sidecar, running
from services.sidecar.settings import SidecarSettings
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar import conformance

WITHIN_SECONDS = 100.0
TOO_LONG_MS = 110_000
"""For reads: whoever calls hangs up before, so an answer proves that the read did not wait for so long."""
QUICK_CONSUMERS = {"fetch.wait.max.ms": "50", "heartbeat.interval.ms": "300"}
"""A new partition is fetched only when the broker has answered, with nothing, about those before it; and a member hears
of others that come and go in the answers to its heartbeats."""
LINGER_MS = 60_000
"""Longer than a test needs to hand over its records; a flush waits for no linger."""
NOWHERE = "127.0.0.1:1"
"""An address where nobody listens."""

Json = dict[str, Any]


@dataclass(frozen=True)
class PlainRecord:
    """A record as a plain client reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def _headers(message: Message) -> Any:
    return message.headers() or ()


@dataclass(frozen=True)
class Kafka:
    """A real cluster, seen by a plain client."""

    bootstrap: str

    def create(self, topic: str, partitions: int = 2, settings: Mapping[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(topic, partitions, 1, config=dict(settings or {}))]).values():
            future.result(WITHIN_SECONDS)
        await_leaders(admin, topic, partitions)

    def write(self, topic: str, *records: Json) -> None:
        """In one batch for each partition, as far as it has room: who reads gets all of it at once."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": LINGER_MS})
        for record in records:
            producer.produce(topic, **record)
        assert producer.flush(WITHIN_SECONDS) == 0

    def read(self, topic: str, count: int | None) -> list[PlainRecord]:
        """All records of a topic, partition by partition; fails when there are more or fewer than `count` offsets.

        None: however many there are, and some may be missing between them; transactions that have ended count, although
        their markers come behind their ends.
        """
        if count is None:
            return self._read_all(topic)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
            ends = {one: _end(consumer, TopicPartition(topic, one)) for one in partitions}
            assert sum(ends.values()) == count
            consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
            messages = consumer.consume(count, timeout=WITHIN_SECONDS) if count else []
        finally:
            consumer.close()
        assert len(messages) == count
        return _plain(messages)

    def _read_all(self, topic: str) -> list[PlainRecord]:
        properties = {"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.partition.eof": True}
        consumer = Consumer({**properties, "enable.auto.commit": False})
        found: list[Message] = []
        try:
            left = ends_of(self.bootstrap, topic)
            consumer.assign([TopicPartition(topic, one, 0) for one in left])
            while left:
                message = consumer.poll(WITHIN_SECONDS)
                assert message is not None, f"{topic}: no end of partitions {left}"
                if (error := message.error()) is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached(left, message)
        finally:
            consumer.close()
        return _plain(found)

    def end(self, topic: str, partition: int = 0) -> int:
        """Where the next record would go."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused"})
        try:
            return _end(consumer, TopicPartition(topic, partition))
        finally:
            consumer.close()

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """The group goes on there; it has no members."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partition: int) -> int:
        """The group's next offset as a plain member of it sees it; -1001 when there is none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})

        def ask() -> list[TopicPartition]:
            """Nothing while a fresh broker does not yet know that it coordinates the group."""
            try:
                return list(consumer.committed([TopicPartition(topic, partition)], timeout=WITHIN_SECONDS))
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
                return []

        try:
            (found,) = wait_until(ask, f"group {group} has a coordinator")
            return int(found.offset)
        finally:
            consumer.close()


def _plain(messages: list[Message]) -> list[PlainRecord]:
    found = [
        PlainRecord(
            message.partition() or 0,
            message.offset() or 0,
            message.key(),
            message.value(),
            message.timestamp()[1],
            [(name, value) for name, value in _headers(message) if isinstance(value, bytes)],
        )
        for message in messages
    ]
    return sorted(found, key=lambda record: (record.partition, record.offset))


def ends_of(bootstrap: str, topic: str) -> dict[int, int]:
    """Where each partition ends, whether what is there is committed or not."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_uncommitted"})
    try:
        partitions = consumer.list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
        return {one: _end(consumer, TopicPartition(topic, one)) for one in partitions}
    finally:
        consumer.close()


def reached(ends: dict[int, int], message: Message) -> None:
    """Drops the end of a partition whose reader is there; one of committed records stops in front of transactions."""
    partition = message.partition() or 0
    if (message.offset() or 0) >= ends.get(partition, 0):
        ends.pop(partition, None)


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """Where the next record would go. The leader of a new topic may not know yet that it is one."""

    def edges() -> tuple[int, ...]:
        try:
            return tuple(consumer.get_watermark_offsets(partition, WITHIN_SECONDS))
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            return ()

    _, end = wait_until(edges, f"the leader of {partition.topic}-{partition.partition} knows that it is one")
    return end


@dataclass(frozen=True)
class Instance:
    """A consumer instance, through its URL."""

    http: httpx.Client
    path: str

    def subscribe(self, *topics: str) -> None:
        assert self.http.post(f"{self.path}/subscriptions", json={"topics": topics}).status_code == 204

    def join(self, partitions: int) -> None:
        """Reads nothing until its group has given it so many partitions."""
        wait_until(
            lambda: self.read(timeout=100) == [] and len(self.assignments()) == partitions,
            f"{self.path} has {partitions} partitions",
            WITHIN_SECONDS,
        )

    def post(self, end: str, body: Json) -> httpx.Response:
        return self.http.post(f"{self.path}/{end}", json=body)

    def assign(self, *partitions: Json) -> None:
        answer = self.post("assignments", {"partitions": partitions})
        assert answer.status_code == 204, answer.text

    def get(self, **query: object) -> httpx.Response:
        return self.http.get(f"{self.path}/records", params={name: str(value) for name, value in query.items()})

    def read(self, **query: object) -> list[Json]:
        """What one read gives."""
        answer = self.get(**query)
        assert answer.status_code == 200, answer.text
        records: list[Json] = answer.json()
        return records

    def read_all(self, count: int, **query: object) -> list[Json]:
        """Reads until there are `count` records."""
        records: list[Json] = []
        deadline = time.monotonic() + WITHIN_SECONDS
        while len(records) < count:
            assert time.monotonic() < deadline, f"only {len(records)} of {count} records"
            records += self.read(**query)
        assert len(records) == count
        return records

    def commit(self, *offsets: Json, **query: object) -> httpx.Response:
        content: Json = {"json": {"offsets": offsets}} if offsets else {}
        return self.http.post(
            f"{self.path}/offsets", params={name: str(value) for name, value in query.items()}, **content
        )

    def committed(self, *partitions: Json) -> list[Json]:
        answer = self.http.put(f"{self.path}/offsets", json={"partitions": partitions})
        offsets: list[Json] = answer.json()["offsets"]
        return offsets

    def assignments(self) -> list[Json]:
        partitions: list[Json] = self.http.get(f"{self.path}/assignments").json()["partitions"]
        return partitions

    def delete(self) -> httpx.Response:
        return self.http.delete(self.path)


@dataclass(frozen=True)
class SidecarWorld:
    """A running sidecar."""

    sidecar: Sidecar
    http: httpx.Client
    aside: ThreadPoolExecutor
    """For calls beside the test; `http` closes when all have been answered."""

    def produce(self, topic: str, *records: Json, **members: object) -> httpx.Response:
        return self.http.post(f"/producers/{topic}", json={"records": records, **members})

    def create(self, group: str, name: str, **members: object) -> Instance:
        """An instance that reads from the beginning."""
        answer = self.http.post(f"/consumers/{group}", json={"name": name, "autoOffsetReset": "earliest", **members})
        assert answer.status_code == 200, answer.text
        return Instance(self.http, answer.json()["base_uri"])


def value_of(gauge: Gauge | Counter) -> float:
    """What a metric without labels says."""
    (metric,) = gauge.collect()
    return metric.samples[0].value


def backend(address: str) -> httpx.Client:
    """What calls a sidecar; every answer is held against the contract."""
    return httpx.Client(base_url=address, timeout=WITHIN_SECONDS, event_hooks={"response": [conformance.check]})


def settings_of(bootstrap: str, **settings: object) -> SidecarSettings:
    """What sidecars of tests have in common."""
    return SidecarSettings.model_validate(
        {
            "listen": "127.0.0.1:0",
            "bootstrap_servers": bootstrap,
            "control_addresses": "",
            "state_dir": "",
            "producer_properties": {"allow.auto.create.topics": "false"},  # brokers of tests make topics
            "consumer_properties": QUICK_CONSUMERS,
            "name": "sidecar-test",
            "request_timeout_ms": 30_000,
            "max_read_ms": TOO_LONG_MS,
            **({} if bootstrap == NOWHERE else {"health_timeout_ms": 30_000}),
            **settings,
        }
    )


@contextlib.asynccontextmanager
async def started_here(bootstrap: str, **settings: object) -> AsyncIterator[SidecarWorld]:
    """A sidecar on this loop, beside another service; call it from other threads."""
    async with running(settings_of(bootstrap, **settings)) as sidecar:
        address = f"http://127.0.0.1:{sidecar.port}"
        with httpx.Client(base_url=address, timeout=WITHIN_SECONDS) as http, ThreadPoolExecutor() as aside:
            yield SidecarWorld(sidecar, http, aside)


@contextlib.contextmanager
def started(bootstrap: str, **settings: object) -> Iterator[SidecarWorld]:
    """A sidecar that serves within the context; when it ends, it has stopped as the process does."""
    chosen = settings_of(bootstrap, **settings)
    loop = asyncio.new_event_loop()
    up = threading.Event()
    sidecars: list[Sidecar] = []
    stopping = asyncio.Event()

    async def life() -> None:
        async with running(chosen) as sidecar:
            sidecars.append(sidecar)
            up.set()
            await stopping.wait()

    def run() -> None:
        try:
            loop.run_until_complete(life())
        finally:
            up.set()
            loop.close()

    thread = threading.Thread(target=run, name="sidecar")
    thread.start()
    with contextlib.ExitStack() as stack:  # the backend's connections outlive the sidecar
        try:
            assert up.wait(WITHIN_SECONDS)
            address = f"http://127.0.0.1:{sidecars[0].port}"
            http, aside = stack.enter_context(backend(address)), stack.enter_context(ThreadPoolExecutor())
            yield SidecarWorld(sidecars[0], http, aside)
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(stopping.set)
            thread.join(WITHIN_SECONDS)
            assert not thread.is_alive()
