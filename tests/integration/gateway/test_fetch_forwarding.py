"""Consumers of several kinds read a topic of a real cluster through the gateway: nearly all of their requests are
forwarded, large answers pass while they arrive, and each of them reads every record once.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition

from services.gateway.downstream import fetch_forwarding, fetch_passing
from services.gateway.requests.records.fetch import ended_in_doubt
from services.gateway.requests.records.fetch_writing import written_fetch
from services.gateway.wire.scanner.fetch_beginning import read_beginning
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all
from tests.integration.gateway.running import Rules, RunningGateway

COUNT = 6_000
VALUES = [f"{number:06} {'x' * 1000}" for number in range(COUNT)]


@dataclass(slots=True)
class Ways:
    """How requests went."""

    forwarded: int = 0
    while_coming: int = 0
    doubted: int = 0


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    counted = Ways()

    def written(*arguments: Any) -> Any:
        counted.forwarded += 1
        return written_fetch(*arguments)

    def begins(*arguments: Any) -> Any:
        found = read_beginning(*arguments)
        counted.while_coming += found is not None
        return found

    def is_doubted(*arguments: Any) -> Any:
        counted.doubted += 1
        return ended_in_doubt(*arguments)

    monkeypatch.setattr(fetch_forwarding, "written_fetch", written)
    monkeypatch.setattr(fetch_forwarding, "ended_in_doubt", is_doubted)
    monkeypatch.setattr(fetch_passing, "read_beginning", begins)
    return counted


@pytest.fixture(params=[1, 3])
def partitions(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def gateway(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
    partitions: int,
) -> RunningGateway:
    create_topic(kafka_c1, apples, partitions)
    started = start_gateway(rules.to("c1", [apples]))
    produce(started.address, apples, VALUES)
    return started


def test_librdkafka(gateway: RunningGateway, ways: Ways, apples: str) -> None:
    assert sorted(read_all(gateway.address, apples, **{"fetch.message.max.bytes": 200_000})) == VALUES
    assert ways.forwarded > ways.doubted, ways


async def test_aiokafka(gateway: RunningGateway, ways: Ways, apples: str, partitions: int) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=gateway.address, max_partition_fetch_bytes=200_000)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(apples, number) for number in range(partitions)])
        await consumer.seek_to_beginning()
        found: list[str] = []
        async with asyncio.timeout(60):
            while len(found) < COUNT:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [(record.value or b"").decode() for record in records]
    finally:
        await consumer.stop()
    assert sorted(found) == VALUES
    assert ways.forwarded > ways.doubted, ways


async def test_kafkas_own(gateway: RunningGateway, ways: Ways, apples: str) -> None:
    options = ("--topic", apples, "--from-beginning", "--max-messages", str(COUNT), "--timeout-ms", "60000")
    printed = await ConsoleTools(gateway.address).run(Tool.CONSOLE_CONSUMER, *options)
    assert sorted(line for line in printed.splitlines() if line) == VALUES
    assert ways.forwarded > ways.doubted, ways
