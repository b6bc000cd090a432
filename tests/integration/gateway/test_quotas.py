"""Real clients under quotas of the mesh: the rate that they reach, what they hear of it, and others who do not."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from statistics import linear_regression

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from mesh.quotas import Entity, Key, Quota
from mesh.quotas.codec import quota_to_proto
from mesh.routing import RoutingTable
from mesh.rpc import quotas
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules, RunningGateway

RATE = 200_000.0
"""Bytes a second."""
RECORD = 10_000
FETCHED = 101_500
"""Ten batches of one record: brokers cut the last batch, and what was cut is charged, too."""
BURST_S = 10.0
"""A client that was quiet may use so many seconds' worth at once."""
SETTLED_S = 22.0
"""So many seconds' worth: the burst, and the pauses after it, which end with its sample."""
MEASURED_S = 22.0
"""Two turns of the samples: a burst comes back when its sample ends, as on brokers."""
NEAR = 0.1


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
            before.revision + self.revision, before.clusters.values(), before.versions, quota_policy=policy
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


def rate_of(sent: list[tuple[float, int]], since: float) -> float:
    """Bytes a second from `since` on: the line that fits best, since bytes come in bursts."""
    later = [(at, size) for at, size in sent if at >= since]
    totals = list(accumulate(size for _, size in later))
    return linear_regression([at for at, _ in later], totals).slope


def measured(sent: list[tuple[float, int]]) -> float:
    """Waits until the burst is over, and then measures."""
    end = time.monotonic() + 90
    while sum(size for _, size in sent) < RATE * SETTLED_S:
        assert time.monotonic() < end
        time.sleep(0.1)
    since = time.monotonic()
    time.sleep(MEASURED_S)
    return rate_of(list(sent), since)


def test_a_producer_keeps_to_its_quota_hears_of_it_and_others_do_not(house: House) -> None:
    house.limit(of_client("greedy"))
    stop, sent, free = threading.Event(), list[tuple[float, int]](), list[tuple[float, int]]()
    heard: list[int] = []
    greedy = threading.Thread(target=lambda: heard.extend(house.produce_confluent("greedy", stop, sent)))
    greedy.start()
    try:
        assert measured(sent) == pytest.approx(RATE, rel=NEAR)
        other = threading.Event()
        modest = threading.Thread(target=house.produce_confluent, args=("modest", other, free))
        modest.start()
        time.sleep(3)
        other.set()
        modest.join()
        assert sum(size for _, size in free) > 5 * RATE * 3
        # another quota counts at once
        house.limit(of_client("greedy", value=20 * RATE))
        began, before = time.monotonic(), len(sent)
        while len(sent) - before < 2 * RATE / RECORD:
            assert time.monotonic() - began < 4, "the client itself may pause for as long as it was told before"
            time.sleep(0.01)
    finally:
        stop.set()
        greedy.join()
    assert max(heard) > 0


async def test_an_aiokafka_producer_that_heeds_no_pause_keeps_to_its_quota(house: House) -> None:
    house.limit(of_client("aio"))
    sent: list[tuple[float, int]] = []
    producer = AIOKafkaProducer(bootstrap_servers=house.bootstrap, client_id="aio", max_batch_size=50_000)
    await producer.start()
    try:
        end = time.monotonic() + 120
        since = 0.0
        while time.monotonic() < end:
            await asyncio.gather(*[await producer.send(house.topic, bytes(RECORD)) for _ in range(4)])
            sent.append((time.monotonic(), 4 * RECORD))
            if not since and sum(size for _, size in sent) > RATE * SETTLED_S:
                since = time.monotonic()
            if since and time.monotonic() - since > MEASURED_S:
                break
    finally:
        await producer.stop()
    assert rate_of(sent, since) == pytest.approx(RATE, rel=NEAR)


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
    assert took > (number * RECORD - RATE * BURST_S) / RATE * (1 - NEAR)
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


LEAST, MOST = 0.5, 1.25
"""The part of its quota that a consumer gets: 0.6 to 1.2 in ten runs. The cause of the difference is not known."""


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
    read: list[tuple[float, int]] = []
    try:
        end = time.monotonic() + 120
        while sum(size for _, size in read) < RATE * (SETTLED_S + MEASURED_S):
            assert time.monotonic() < end
            message = consumer.poll(1)
            if message is not None and not message.error():
                read.append((time.monotonic(), RECORD))
    finally:
        consumer.close()
    burst = 0
    for at, size in read:
        burst += size
        if burst > RATE * SETTLED_S:
            assert LEAST < rate_of(read, at) / RATE < MOST
            break


async def test_an_aiokafka_consumer_keeps_to_its_quota(filled: House) -> None:
    filled.limit(of_client("aio", Key.CONSUMER_BYTE_RATE))
    consumer = AIOKafkaConsumer(
        filled.topic,
        bootstrap_servers=filled.bootstrap,
        client_id="aio",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCHED,
    )
    await consumer.start()
    read: list[tuple[float, int]] = []
    try:
        async with asyncio.timeout(120):
            async for _ in consumer:
                read.append((time.monotonic(), RECORD))
                if sum(size for _, size in read) > RATE * (SETTLED_S + MEASURED_S):
                    break
    finally:
        await consumer.stop()
    since = read[int(RATE * SETTLED_S / RECORD)][0]
    assert LEAST < rate_of(read, since) / RATE < MOST


async def test_kafkas_tool_shows_the_quotas_of_the_mesh_and_is_told_who_changes_them(house: House) -> None:
    house.limit(Quota(Entity("alice"), Key.PRODUCER_BYTE_RATE, RATE), of_client("app", value=7.0))
    tools = ConsoleTools(house.bootstrap)
    shown = await tools.run(Tool.CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "alice")
    assert "producer_byte_rate=200000.0" in shown
    assert "app" not in shown
    clients = await tools.run(Tool.CONFIGS, "--describe", "--entity-type", "clients")
    assert "producer_byte_rate=7.0" in clients
    with pytest.raises(ClientError, match="meshctl quota set"):
        await tools.run(
            Tool.CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice",
            "--add-config", "producer_byte_rate=5",
        )  # fmt: skip
