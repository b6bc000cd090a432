"""The tools with which Kafka tests and measures itself: what they send arrives, and they find it again."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.matrix import Feature
from tests.clients.world import World

RECORDS = 300


@pytest.fixture
def tools(world: World) -> ConsoleTools:
    return ConsoleTools(world.bootstrap)


@pytest.mark.soak
@pytest.mark.feature(Feature.PRODUCE, Feature.GROUP, client="console-tools")
async def test_verifiable_producer_and_consumer_agree(tools: ConsoleTools, world: World) -> None:
    topics = await world.topic_on_each(partitions=2)
    group = world.name("group")
    count = ("--max-messages", str(RECORDS))

    async def send_and_read(topic: str) -> None:
        told = events(await tools.run(Tool.VERIFIABLE_PRODUCER, "--topic", topic, *count))
        sent = {place(event): event["value"] for event in told if event["name"] == "producer_send_success"}
        assert Counter(sent.values()) == Counter(str(number) for number in range(RECORDS))

        reading = ("--topic", topic, "--group-id", f"{group}-{topic}", "--verbose", "--reset-policy", "earliest")
        told = events(await tools.run(Tool.VERIFIABLE_CONSUMER, *reading, *count))
        assert {place(event): event["value"] for event in told if event["name"] == "record_data"} == sent
        assert all(event["success"] for event in told if event["name"] == "offsets_committed")

    await asyncio.gather(*map(send_and_read, topics))


@pytest.mark.feature(Feature.PRODUCE, client="console-tools")
async def test_latency_from_end_to_end_is_measured(tools: ConsoleTools, world: World) -> None:
    async def measure(topic: str) -> None:
        sending = ("--topic", topic, "--num-records", "100", "--producer-acks", "all", "--record-size", "100")
        printed = await tools.run(Tool.END_TO_END_LATENCY, *sending)
        (average,) = re.findall(r"^Avg latency: ([\d.]+) ms", printed, re.MULTILINE)
        assert float(average) > 0

    await asyncio.gather(*map(measure, await world.topic_on_each(partitions=1)))


@pytest.mark.feature(Feature.ADMIN, Feature.GROUP_ADMIN, client="console-tools")
async def test_offsets_and_groups_are_shown(tools: ConsoleTools, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    group = world.name("group")
    either = ("--include", "|".join(topics), "--from-beginning", "--group", group)
    for topic in topics:
        await tools.run(Tool.CONSOLE_PRODUCER, "--topic", topic, stdin="one\ntwo\n")
    await tools.run(Tool.CONSOLE_CONSUMER, *either, "--max-messages", "4", "--timeout-ms", "50000")

    offsets, groups = await asyncio.gather(
        tools.run(Tool.GET_OFFSETS, "--topic-partitions", ",".join(f"{topic}:0" for topic in topics)),
        tools.run(Tool.GROUPS, "--list"),
    )

    assert sorted(offsets.split()) == sorted(f"{topic}:0:2" for topic in topics)
    assert re.search(rf"^{group}\s+Classic\s", groups, re.MULTILINE), groups


def events(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def place(event: dict[str, Any]) -> tuple[int, int]:
    return event["partition"], event["offset"]
