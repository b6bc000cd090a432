"""Kafka's own producers and consumers for the command line work against the mesh as against a cluster."""

from __future__ import annotations

import re

import pytest

from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.world import World

PERF_RECORDS = 2_000


@pytest.fixture
def tools(world: World) -> ConsoleTools:
    return ConsoleTools(world.bootstrap)


async def test_console_producer_and_consumer(tools: ConsoleTools, world: World) -> None:
    for topic in await world.topic_on_each(partitions=1):
        lines = [f"origin:console\tkey-{number}\tvalue-{number}" for number in range(10)]
        parse = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")

        await tools.run(Tool.CONSOLE_PRODUCER, "--topic", topic, *parse, stdin="\n".join(lines) + "\n")

        show = ("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
        reading = ("--topic", topic, "--from-beginning", "--max-messages", "10", "--timeout-ms", "20000")
        printed = await tools.run(Tool.CONSOLE_CONSUMER, *reading, *show)
        assert [line for line in printed.splitlines() if line.startswith("origin:")] == lines


async def test_perf_tools_send_and_read_all_records(tools: ConsoleTools, world: World) -> None:
    for topic in await world.topic_on_each():
        sending = ("--num-records", str(PERF_RECORDS), "--record-size", "100", "--throughput", "-1")
        printed = await tools.run(Tool.PRODUCER_PERF_TEST, "--topic", topic, *sending)
        assert f"{PERF_RECORDS} records sent" in printed

        reading = ("--num-records", str(PERF_RECORDS), "--timeout", "20000", "--hide-header")
        printed = await tools.run(Tool.CONSUMER_PERF_TEST, "--topic", topic, *reading)
        (read,) = re.findall(r"^[^,]+,[^,]+,[^,]+,[^,]+, (\d+),", printed, re.MULTILINE)
        assert int(read) >= PERF_RECORDS


async def test_consumer_groups_shows_no_lag_after_reading_all(tools: ConsoleTools, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=1)
    group = world.name("group")
    for topic in (on_c1, on_c2):
        await tools.run(Tool.CONSOLE_PRODUCER, "--topic", topic, stdin="one\ntwo\n")
    either = ("--include", f"{on_c1}|{on_c2}", "--from-beginning", "--group", group)
    await tools.run(Tool.CONSOLE_CONSUMER, *either, "--max-messages", "4", "--timeout-ms", "20000")

    described = await tools.run(Tool.CONSUMER_GROUPS, "--describe", "--offsets", "--group", group)

    rows = re.findall(rf"^{group}\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", described, re.MULTILINE)
    assert sorted(rows) == sorted((topic, "0", "2", "2", "0") for topic in (on_c1, on_c2))
