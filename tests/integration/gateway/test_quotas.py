"""Real clients under quotas of the mesh: no more than they may, what they hear of it, and others who do not."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from mesh.quotas import Entity, Key, Quota
from mesh.quotas.codec import quota_to_proto
from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import quotas
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules, RunningGateway

RATE = 200_000.0
"""Bytes a second."""
RECORD = 10_000
FETCHED = 101_500
"""Ten batches of one record: brokers cut the last batch, and what was cut is charged, too."""
BURST_S = 11.0
"""A client that was quiet may use so many seconds' worth at once, and again when the sample of the burst ends."""
MOVED_S = 18.0
"""So many seconds' worth: the burst, and further requests, which have to wait."""


@dataclass
class House:
    """A gateway before one cluster, with one topic."""

    gateway: RunningGateway
    table: RoutingTable
    topic: str
    revision: int = 0

    @property
    def bootstrap(self) -> str:
        return self.gateway.address.rpartition("//")[2]

    def limit(self, *given: Quota) -> None:
        """The policy comes with a table, as from a router."""
        self.revision += 1
        policy = quotas.QuotaPolicy(quotas=map(quota_to_proto, given), revision=self.revision)
        before = self.table
        table = RoutingTable(
            before.revision + self.revision,
            before.clusters.values(),
            before.versions,
            policies=Policies(quota_policy=policy),
        )

        async def run() -> None:
            self.gateway.gateway.mesh.run_table(table)

        self.gateway.call(run)

    def produce_confluent(self, client_id: str, stop: threading.Event, sent: list[tuple[float, int]]) -> list[int]:
        """Until the stop; the throttle times in ms that librdkafka has heard."""
        throttled: list[int] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "client.id": client_id,
                "batch.size": 100_000,
                "linger.ms": 20,
                "statistics.interval.ms": 1000,
                "stats_cb": lambda text: throttled.extend(
                    broker["throttle"]["max"] for broker in json.loads(text)["brokers"].values()
                ),
                "message.timeout.ms": 120_000,
            }
        )
        pending = 0

        def done(error: object, message: object) -> None:
            nonlocal pending
            pending -= 1
            assert error is None
            sent.append((time.monotonic(), RECORD))

        while not stop.is_set():
            while pending < 40 and not stop.is_set():
                pending += 1
                producer.produce(self.topic, bytes(RECORD), on_delivery=done)
            producer.poll(0.05)
        producer.flush(30)
        return throttled


@pytest.fixture
def house(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
) -> Iterator[House]:
    topic = unique_name("quota")
    create_topic(kafka_c1, topic, 1)
    table = rules.to("c1", [topic])
    yield House(start_gateway(table), table, topic)


def of_client(client_id: str, key: Key = Key.PRODUCER_BYTE_RATE, value: float = RATE) -> Quota:
    return Quota(Entity(client_id=client_id), key, value)


def is_held_back(moved: int, took: float) -> bool:
    """Whether so many bytes took as long as the quota asks for. A busy machine makes clients slower, and not faster."""
    return took > 0.9 * (moved / RATE - BURST_S)


def test_a_producer_keeps_to_its_quota_hears_of_it_and_others_do_not(house: House) -> None:
    house.limit(of_client("greedy"))
    stop, sent, free = threading.Event(), list[tuple[float, int]](), list[tuple[float, int]]()
    heard: list[int] = []
    greedy = threading.Thread(target=lambda: heard.extend(house.produce_confluent("greedy", stop, sent)))
    start = time.monotonic()
    greedy.start()
    try:
        wait_until(lambda: len(sent) * RECORD > RATE * MOVED_S, "the producer goes on, for all its pauses", 120)
        assert is_held_back(len(sent) * RECORD, time.monotonic() - start)
        other = threading.Event()
        modest = threading.Thread(target=house.produce_confluent, args=("modest", other, free))
        start = time.monotonic()
        modest.start()
        wait_until(lambda: len(free) * RECORD > 5 * RATE * 3, "the other producer writes", 60)
        assert len(free) * RECORD > 5 * RATE * (time.monotonic() - start)
        other.set()
        modest.join()
        # another quota counts at once: by the one before, this would take 29 s at least
        house.limit(of_client("greedy", value=20 * RATE))
        began, before = time.monotonic(), len(sent)
        wait_until(lambda: len(sent) - before > 40 * RATE / RECORD, "40 s' worth of the quota before", 60)
        assert time.monotonic() - began < 25
    finally:
        stop.set()
        greedy.join()
    assert max(heard) > 0


async def test_an_aiokafka_producer_that_heeds_no_pause_keeps_to_the_quota_of_all_users_like_it(house: House) -> None:
    house.limit(Quota(Entity("Prefixed:ANON", "aio"), Key.PRODUCER_BYTE_RATE, RATE))
    producer = AIOKafkaProducer(bootstrap_servers=house.bootstrap, client_id="aio", max_batch_size=50_000)
    await producer.start()
    began, moved = time.monotonic(), 0
    try:
        async with asyncio.timeout(120):
            while moved < RATE * MOVED_S:
                await asyncio.gather(*[await producer.send(house.topic, bytes(RECORD)) for _ in range(4)])
                moved += 4 * RECORD
    finally:
        await producer.stop()
    assert is_held_back(moved, time.monotonic() - began)


async def test_javas_producer_keeps_to_its_quota_and_its_metrics_tell(house: House) -> None:
    house.limit(of_client("java"))
    number = 450
    run = ConsoleTools(house.bootstrap).run(
        Tool.PRODUCER_PERF_TEST, "--topic", house.topic, "--num-records", str(number), "--record-size", str(RECORD),
        "--throughput", "-1", "--print-metrics", "--command-property", "client.id=java", "linger.ms=0",
    )  # fmt: skip
    began = time.monotonic()
    told = await run
    took = time.monotonic() - began
    assert is_held_back(number * RECORD, took)
    throttled = re.findall(r"produce-throttle-time-max.*?:\s*([\d.]+)", told)
    assert throttled
    assert max(map(float, throttled)) > 0


@pytest.fixture
def filled(house: House) -> House:
    producer = Producer({"bootstrap.servers": house.bootstrap, "batch.size": 10_100})
    for _ in range(1_000):
        producer.produce(house.topic, bytes(RECORD))
    producer.flush(60)
    return house


def test_a_consumer_keeps_to_its_quota(filled: House) -> None:
    filled.limit(of_client("reader", Key.CONSUMER_BYTE_RATE))
    consumer = Consumer(
        {
            "bootstrap.servers": filled.bootstrap,
            "client.id": "reader",
            "group.id": filled.topic,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": FETCHED,
            "queued.max.messages.kbytes": 100,
        }
    )
    consumer.subscribe([filled.topic])
    began, moved = time.monotonic(), 0
    try:
        while moved < RATE * MOVED_S:
            assert time.monotonic() - began < 120
            message = consumer.poll(1)
            if message is not None and not message.error():
                moved += RECORD
        took = time.monotonic() - began
    finally:
        consumer.close()
    assert is_held_back(moved, took)


@pytest.mark.soak
async def test_an_aiokafka_consumer_keeps_to_its_quota(filled: House) -> None:
    filled.limit(of_client("aio", Key.CONSUMER_BYTE_RATE))
    consumer = AIOKafkaConsumer(
        filled.topic,
        bootstrap_servers=filled.bootstrap,
        client_id="aio",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCHED,
    )
    began, moved = time.monotonic(), 0
    await consumer.start()
    try:
        async with asyncio.timeout(120):
            async for _ in consumer:
                moved += RECORD
                if moved > RATE * MOVED_S:
                    break
        took = time.monotonic() - began
    finally:
        await consumer.stop()
    assert is_held_back(moved, took)


async def test_kafkas_tool_shows_the_quotas_of_the_mesh_and_is_told_who_changes_them(house: House) -> None:
    house.limit(Quota(Entity("alice"), Key.PRODUCER_BYTE_RATE, RATE), of_client("app", value=7.0))
    tools = ConsoleTools(house.bootstrap)
    shown = await tools.run(Tool.CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "alice")
    assert "producer_byte_rate=200000.0" in shown
    assert "app" not in shown
    clients = await tools.run(Tool.CONFIGS, "--describe", "--entity-type", "clients")
    assert "producer_byte_rate=7.0" in clients
    with pytest.raises(ClientError, match="no way to control: use meshctl"):
        await tools.run(
            Tool.CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice",
            "--add-config", "producer_byte_rate=5",
        )  # fmt: skip
