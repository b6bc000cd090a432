"""Real clients under quotas of the mesh: no more than they may, what they hear of it, and others who do not."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.oauth_issuer import AUDIENCE, FakeIssuer
from tests.fixtures.ports import free_block
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
MOVED_S = 15.0
"""So many seconds' worth: the burst, and further requests, which have to wait."""
SHARED_S = 18.0
"""As much, when two clients have requests underway."""
FREE_S = 40.0
"""So many seconds' worth without a quota: with one, half a minute."""

UNDERWAY = 400_000
"""Bytes that a client of librdkafka has sent at most, and not heard of."""
BUSY_S = 12.0
"""Longer than the burst of a client that was quiet."""


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

    def produce_confluent(
        self, client_id: str, stop: threading.Event, sent: list[tuple[float, int]], **more: Any
    ) -> list[int]:
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
                **more,
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
def issuer(tmp_path: Path) -> Iterator[FakeIssuer]:
    issuer = FakeIssuer(tmp_path, Authority(tmp_path / "tls"))
    issuer.name = issuer.address
    with issuer.running():
        yield issuer


@pytest.fixture
def named(
    rules: Rules,
    kafka_c1: KafkaCluster,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    issuer: FakeIssuer,
) -> House:
    """Its clients log in with tokens."""
    topic = unique_name("quota")
    create_topic(kafka_c1, topic, 1)
    table = rules.to("c1", [topic])
    gateway = start_gateway(
        table,
        listen=f"SASL_PLAINTEXT://127.0.0.1:{free_block(1)}",
        allow_insecure=True,
        sasl_mechanisms=("OAUTHBEARER",),
        token_issuers=({"issuer": issuer.name, "audience": AUDIENCE},),
        token_keys_ca=issuer.authority.certificate,
    )
    return House(gateway, table, topic)


def login_of(issuer: FakeIssuer, user: str, *groups: str) -> dict[str, Any]:
    issuer.groups = groups
    token = issuer.token(user)
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + issuer.life_s),
    }


@pytest.mark.parametrize(
    ("whose", "users", "free"), [("ann", ("ann", "ann"), "ben"), ("Group:reports", ("ann", "ben"), "eve")]
)
def test_clients_of_a_user_or_group_share_its_quota_and_each_hears_of_it(
    whose: str, users: tuple[str, str], free: str, named: House, issuer: FakeIssuer
) -> None:
    named.limit(Quota(Entity(whose), Key.PRODUCER_BYTE_RATE, RATE))
    stop, sent, others = threading.Event(), list[tuple[float, int]](), list[tuple[float, int]]()
    logins = [login_of(issuer, user, "sales", "reports") for user in users]
    stranger = login_of(issuer, free, "sales")

    def produce(client_id: str, of: list[tuple[float, int]], login: dict[str, Any]) -> list[int]:
        return named.produce_confluent(client_id, stop, of, **login)

    with ThreadPoolExecutor(3) as threads:
        start = time.monotonic()
        try:
            limited = [threads.submit(produce, f"app-{n}", sent, login) for n, login in enumerate(logins)]
            wait_until(lambda: len(sent) * RECORD > RATE * SHARED_S, "the clients go on, for all their pauses", 120)
            moved = len(sent) * RECORD - 2 * UNDERWAY  # what was read before a pause is carried out
            assert is_held_back(moved, time.monotonic() - start), "both together have one quota"
            began = time.monotonic()
            unlimited = threads.submit(produce, "app-2", others, stranger)
            wait_until(lambda: len(others) * RECORD > RATE * FREE_S, "another client writes", 120)
            assert not is_held_back(len(others) * RECORD, time.monotonic() - began)
        finally:
            stop.set()
        assert all(max(each.result(60)) > 0 for each in limited)
        assert max(unlimited.result(60)) == 0


def test_a_client_may_take_so_much_time_of_the_gateway_and_hears_of_its_pauses(house: House) -> None:
    """The quota is 1 ms of each second. The other client shows how many requests this machine carries out meanwhile."""
    house.limit(of_client("busy", Key.REQUEST_PERCENTAGE, 0.1))
    stop = threading.Event()

    def requests(client_id: str) -> tuple[int, float]:
        """How many, and the longest throttle time that the client has heard, in ms."""
        heard: list[float] = [0]
        producer = Producer(
            {
                "bootstrap.servers": house.bootstrap,
                "client.id": client_id,
                "linger.ms": 0,
                "statistics.interval.ms": 500,
                "stats_cb": lambda text: heard.extend(
                    broker["throttle"]["max"] for broker in json.loads(text)["brokers"].values()
                ),
            }
        )
        count = 0
        while not stop.is_set():
            producer.produce(house.topic, b"x")
            assert producer.flush(60) == 0
            count += 1
        return count, max(heard)

    with ThreadPoolExecutor(2) as threads:
        busy, free = threads.submit(requests, "busy"), threads.submit(requests, "free")
        time.sleep(BUSY_S)  # what is measured is the work within this time
        stop.set()
        (limited, heard), (unlimited, nothing) = busy.result(60), free.result(60)
    assert limited < unlimited / 3
    assert 0 < heard <= 1_000, "an excess of time costs a second at most, as on brokers"
    assert nothing == 0


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
