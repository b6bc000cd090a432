"""Consumers of several kinds read a topic that three real brokers lead, at one address: nearly all of their requests
are forwarded to all three, and each reads every record once. So are those of many partitions in a broker's session.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.gateway.downstream import fetch_forwarding, fetch_in_flight
from services.gateway.requests.records.fetch import ended_in_doubt
from services.gateway.requests.records.fetch_poll import fitting
from services.gateway.requests.records.fetch_writing import written_fetch
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.three_brokers import ThreeBrokers
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all
from tests.integration.gateway.running import Rules, RunningGateway

COUNT = 6_000
VALUES = [f"{number:06} {'x' * 1000}" for number in range(COUNT)]
PARTITIONS = 6
MANY_PARTITIONS = 24
"""Enough for a broker to be asked for a session."""

pytestmark = pytest.mark.timeout(300)


@dataclass(slots=True)
class Ways:
    """How requests went."""

    forwarded: int = 0
    """Requests to brokers."""
    doubted: int = 0
    joined: int = 0
    """Answers of several brokers."""


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    counted = Ways()

    def written(*arguments: Any) -> Any:
        counted.forwarded += 1
        return written_fetch(*arguments)

    def is_doubted(*arguments: Any) -> Any:
        counted.doubted += 1
        return ended_in_doubt(*arguments)

    def joined(*arguments: Any) -> Any:
        counted.joined += 1
        return fitting(*arguments)

    monkeypatch.setattr(fetch_forwarding, "written_fetch", written)
    monkeypatch.setattr(fetch_forwarding, "ended_in_doubt", is_doubted)
    monkeypatch.setattr(fetch_in_flight, "fitting", joined)
    return counted


@pytest.fixture
def topic(unique_name: Callable[[str], str]) -> str:
    return unique_name("several")


@pytest.fixture
def gateway(three_brokers: ThreeBrokers, start_gateway: StartGateway, topic: str) -> RunningGateway:
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    await_leaders(admin, topic, PARTITIONS)
    started = start_gateway(Rules({"wide": three_brokers.bootstrap}).to("wide", [topic]))
    produce(started.address, topic, VALUES)
    return started


def test_librdkafka(gateway: RunningGateway, ways: Ways, topic: str) -> None:
    assert sorted(read_all(gateway.address, topic, **{"fetch.message.max.bytes": 50_000})) == VALUES
    assert ways.joined
    assert ways.forwarded > ways.doubted, ways


async def test_aiokafka(gateway: RunningGateway, ways: Ways, topic: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=gateway.address, max_partition_fetch_bytes=50_000)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        await consumer.seek_to_beginning()
        found: list[str] = []
        async with asyncio.timeout(60):
            while len(found) < COUNT:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [(record.value or b"").decode() for record in records]
    finally:
        await consumer.stop()
    assert sorted(found) == VALUES
    assert ways.joined
    assert ways.forwarded > ways.doubted, ways


async def test_kafkas_own(gateway: RunningGateway, ways: Ways, topic: str) -> None:
    assert await printed_by_kafkas_own(gateway, topic) == VALUES
    assert ways.joined
    assert ways.forwarded > ways.doubted, ways


async def test_kafkas_own_in_a_brokers_session(
    start_gateway: StartGateway,
    rules: Rules,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    ways: Ways,
    topic: str,
) -> None:
    create_topic(kafka_c1, topic, MANY_PARTITIONS)
    gateway = start_gateway(rules.to("c1", [topic]))
    produce(gateway.address, topic, VALUES)
    assert await printed_by_kafkas_own(gateway, topic) == VALUES
    assert not ways.joined
    assert ways.forwarded > ways.doubted, ways


async def printed_by_kafkas_own(gateway: RunningGateway, topic: str) -> list[str]:
    small = ("--command-property", "max.partition.fetch.bytes=50000")
    options = ("--topic", topic, "--from-beginning", "--max-messages", str(COUNT), "--timeout-ms", "60000", *small)
    printed = await ConsoleTools(gateway.address).run(Tool.CONSOLE_CONSUMER, *options)
    return sorted(line for line in printed.splitlines() if line)
