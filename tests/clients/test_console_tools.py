"""Kafka's own tools for the command line work against the mesh as against a cluster."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.console.driver import ConsoleAdmin, ConsoleTools, Tool
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, ClientError, Message, Reading, Sending
from tests.clients.entrances import Entrance, of_librdkafka
from tests.clients.matrix import Feature
from tests.clients.settling import settled_config
from tests.clients.world import World
from tests.fixtures.waiting import until

PERF_RECORDS = 2_000
TOOL_MS = "50000"
"""For so long a tool waits for records, a little less than its test waits for the tool."""


@pytest.fixture
def tools(world: World) -> ConsoleTools:
    return ConsoleTools(world.bootstrap)


@pytest.mark.feature(Feature.PRODUCE, client="console-tools")
async def test_console_producer_and_consumer(tools: ConsoleTools, world: World) -> None:
    for topic in await world.topic_on_each(partitions=1):
        lines = [f"origin:console\tkey-{number}\tvalue-{number}" for number in range(10)]
        parse = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")

        await tools.run(Tool.CONSOLE_PRODUCER, "--topic", topic, *parse, stdin="\n".join(lines) + "\n")

        show = ("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
        reading = ("--topic", topic, "--from-beginning", "--max-messages", "10", "--timeout-ms", TOOL_MS)
        printed = await tools.run(Tool.CONSOLE_CONSUMER, *reading, *show)
        assert [line for line in printed.splitlines() if line.startswith("origin:")] == lines


@pytest.mark.feature(Feature.PRODUCE, client="console-tools")
async def test_perf_tools_send_and_read_all_records(tools: ConsoleTools, world: World) -> None:
    for topic in await world.topic_on_each():
        sending = ("--num-records", str(PERF_RECORDS), "--record-size", "100", "--throughput", "-1")
        printed = await tools.run(Tool.PRODUCER_PERF_TEST, "--topic", topic, *sending)
        assert f"{PERF_RECORDS} records sent" in printed

        reading = ("--num-records", str(PERF_RECORDS), "--timeout", TOOL_MS, "--hide-header")
        printed = await tools.run(Tool.CONSUMER_PERF_TEST, "--topic", topic, *reading)
        (read,) = re.findall(r"^[^,]+,[^,]+,[^,]+,[^,]+, (\d+),", printed, re.MULTILINE)
        assert int(read) >= PERF_RECORDS


@pytest.mark.feature(Feature.TRANSACTIONS, client="console-tools")
async def test_the_perf_tool_sends_in_transactions_to_either_cluster_without_a_rule(
    tools: ConsoleTools, world: World
) -> None:
    sending = ("--num-records", str(PERF_RECORDS), "--record-size", "100", "--throughput", "-1")
    for cluster, topic in zip((world.c1, world.c2), await world.topic_on_each(), strict=True):
        transactional = ("--transactional-id", world.name("perf"), "--transaction-duration-ms", "50")
        printed = await tools.run(Tool.PRODUCER_PERF_TEST, "--topic", topic, *sending, *transactional)
        assert f"{PERF_RECORDS} records sent" in printed
        await cluster.wait_for_committed(topic, PERF_RECORDS)


@pytest.mark.feature(Feature.GROUP, Feature.GROUP_ADMIN, client="console-tools")
async def test_consumer_groups_shows_no_lag_after_reading_all(tools: ConsoleTools, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    group = world.name("group")
    await read_two_records_of_each(tools, group, topics)

    described = await tools.run(Tool.CONSUMER_GROUPS, "--describe", "--offsets", "--group", group)

    rows = re.findall(rf"^{group}\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", described, re.MULTILINE)
    assert sorted(rows) == sorted((topic, "0", "2", "2", "0") for topic in topics)


@pytest.mark.feature(Feature.ADMIN, client="console-tools")
async def test_topics_grow_on_their_clusters(tools: ConsoleTools, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=1)
    for cluster, topic, count in ((world.c1, on_c1, 3), (world.c2, on_c2, 4)):
        await tools.run(Tool.TOPICS, "--alter", "--topic", topic, "--partitions", str(count))
        await cluster.wait_for_partitions(topic, count)
        assert await ConsoleAdmin(world.bootstrap).partitions(topic) == count


@pytest.mark.feature(Feature.ADMIN, client="console-tools")
async def test_settings_of_topics_are_changed_and_put_back(tools: ConsoleTools, world: World) -> None:
    admin = ConsoleAdmin(world.bootstrap)
    for topic in await world.topic_on_each(partitions=1):
        changing = ("--alter", "--entity-type", "topics", "--entity-name", topic)
        before = await admin.topic_config(topic)

        await tools.run(
            Tool.CONFIGS, *changing, "--add-config", "retention.ms=86400001,cleanup.policy=[compact,delete]"
        )
        await settled_config(admin, topic, {"retention.ms": "86400001", "cleanup.policy": "compact,delete"})

        await tools.run(Tool.CONFIGS, *changing, "--delete-config", "retention.ms,cleanup.policy")
        assert await settled_config(admin, topic, before) == before


async def test_a_brokers_setting_is_changed_on_its_own_cluster(tools: ConsoleTools, world: World) -> None:
    nodes = re.findall(r" \(id: (\d+) ", await tools.run(Tool.BROKER_API_VERSIONS))
    first, *others = sorted(set(nodes))
    setting = "log.cleaner.io.buffer.load.factor"

    async def values() -> dict[str, str]:
        found = {}
        for node in (first, *others):
            printed = await tools.run(
                Tool.CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", node
            )
            [found[node]] = re.findall(rf"^  {re.escape(setting)}=(\S+) ", printed, re.MULTILINE)
        return found

    async def become(expected: dict[str, str]) -> None:
        """The controller answers a change before each broker has applied it."""
        async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
            while await values() != expected:
                pass

    changing = ("--alter", "--entity-type", "brokers", "--entity-name", first)
    before = await values()
    await tools.run(Tool.CONFIGS, *changing, "--add-config", f"{setting}=0.8")
    try:
        await become(before | {first: "0.8"})
    finally:
        await tools.run(Tool.CONFIGS, *changing, "--delete-config", setting)
    await become(before)


@pytest.mark.feature(Feature.GROUP_ADMIN, client="console-tools")
async def test_offsets_of_a_group_over_two_clusters_are_reset(tools: ConsoleTools, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    group = world.name("group")
    await have_two_records_of_each_read(world, group, topics)

    of_each = [option for topic in topics for option in ("--topic", topic)]
    await tools.run(
        Tool.CONSUMER_GROUPS, "--reset-offsets", "--group", group, *of_each, "--to-offset", "1", "--execute"
    )

    assert await committed(world, group, topics) == dict.fromkeys(topics, 1)


async def test_a_group_forgets_offsets_of_one_topic(tools: ConsoleTools, world: World) -> None:
    for first in (0, 1):
        topics = await world.topic_on_each(partitions=1)
        forgotten, kept = topics[first], topics[1 - first]
        group = world.name("group")
        await have_two_records_of_each_read(world, group, topics)

        printed = await tools.run(Tool.CONSUMER_GROUPS, "--delete-offsets", "--group", group, "--topic", forgotten)

        assert re.search(rf"^{forgotten}\s+0\s+Successful", printed, re.MULTILINE), printed
        assert await committed(world, group, topics) == {kept: 2}


@pytest.mark.feature(Feature.GROUP_ADMIN, client="console-tools")
async def test_a_group_over_two_clusters_is_deleted(tools: ConsoleTools, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    group = world.name("group")
    await have_two_records_of_each_read(world, group, topics)

    printed = await tools.run(Tool.CONSUMER_GROUPS, "--delete", "--group", group)

    assert "successful" in printed
    assert group not in await ConsoleAdmin(world.bootstrap).groups()
    assert await committed(world, group, topics) == {}


async def test_records_are_deleted_from_the_start_of_logs(tools: ConsoleTools, world: World, tmp_path: Path) -> None:
    topics = await world.topic_on_each(partitions=1)
    await write(world, topics, "one", "two", "three")
    offsets = tmp_path / "offsets.json"
    places = [{"topic": topic, "partition": 0, "offset": at} for topic, at in zip(topics, (1, 2), strict=True)]
    offsets.write_text(json.dumps({"version": 1, "partitions": places}))

    printed = await tools.run(Tool.DELETE_RECORDS, "--offset-json-file", str(offsets))

    for topic, left in zip(topics, (["two", "three"], ["three"]), strict=True):
        assert f"partition: {topic}-0\tlow_watermark: {3 - len(left)}" in printed
        reading = ("--topic", topic, "--from-beginning", "--max-messages", str(len(left)), "--timeout-ms", TOOL_MS)
        assert (await tools.run(Tool.CONSOLE_CONSUMER, *reading)).split() == left


async def test_log_dirs_name_cluster_and_broker(tools: ConsoleTools, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    await write(world, topics, "one")

    printed = await tools.run(Tool.LOG_DIRS, "--describe", "--topic-list", ",".join(topics))

    (line,) = re.findall(r"^\{.*\}$", printed, re.MULTILINE)
    for broker in json.loads(line)["brokers"]:
        sizes = {each["partition"]: each["size"] for logs in broker["logDirs"] for each in logs["partitions"]}
        assert sizes.keys() == {f"{topic}-0" for topic in topics}
        assert all(sizes.values())


async def test_leaders_that_are_preferred_stay(tools: ConsoleTools, world: World) -> None:
    for topic in await world.topic_on_each(partitions=1):
        electing = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
        printed = await tools.run(Tool.LEADER_ELECTION, *electing)
        assert f"Valid replica already elected for partitions {topic}-0" in printed


async def test_producers_of_partitions_are_described(tools: ConsoleTools, world: World) -> None:
    for topic in await world.topic_on_each(partitions=1):
        await write(world, [topic], "one")
        printed = await tools.run(Tool.TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
        assert len(re.findall(r"^\d+\s+\d+\s+", printed, re.MULTILINE)) == 1, printed


@pytest.mark.feature(Feature.TRANSACTIONS, client="console-tools")
async def test_an_open_transaction_is_listed_described_and_aborted(tools: ConsoleTools, world: World) -> None:
    topic, _ = await world.topic_on_each(partitions=1)
    transactional_id = world.name("open")
    lasting = {"transaction.timeout.ms": 900_000}  # on a busy machine the tools below take a minute
    producer = Producer({**of_librdkafka(world.bootstrap), "transactional.id": transactional_id, **lasting})
    await asyncio.to_thread(leave_open, producer, topic)

    listed, described = await side_by_side(
        tools.run(Tool.TRANSACTIONS, "list"),
        tools.run(Tool.TRANSACTIONS, "describe", "--transactional-id", transactional_id),
    )
    assert re.search(rf"^{transactional_id}\s+\d+\s+\d+\s+Ongoing\s", listed, re.MULTILINE), listed
    assert re.search(rf"\s{transactional_id}\s.*\sOngoing\s.*\s{topic}-0\s", described), described

    await tools.run(Tool.TRANSACTIONS, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    printed = await tools.run(Tool.TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"\sNone\s*$", printed), "no open transaction is left on the partition"


def leave_open(producer: Producer, topic: str) -> None:
    producer.init_transactions(OPERATION_TIMEOUT_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, "never read by read_committed")
    assert producer.flush(OPERATION_TIMEOUT_SECONDS) == 0


async def test_a_quota_of_a_user_is_set_and_shown(tools: ConsoleTools, world: World) -> None:
    of_user = ("--entity-type", "users", "--entity-name", world.name("bob"))
    await tools.run(Tool.CONFIGS, "--alter", *of_user, "--add-config", "producer_byte_rate=1000000")

    async def is_told() -> bool:
        """The controller answers a change before each broker has applied it."""
        return "producer_byte_rate=1000000" in await tools.run(Tool.CONFIGS, "--describe", *of_user)

    await until(is_told, "the quota is shown")
    await tools.run(Tool.CONFIGS, "--alter", *of_user, "--delete-config", "producer_byte_rate")


async def test_features_reassignments_and_rights_are_those_of_all_clusters(tools: ConsoleTools, world: World) -> None:
    features, moving = await side_by_side(
        tools.run(Tool.FEATURES, "describe"), tools.run(Tool.REASSIGN_PARTITIONS, "--list")
    )
    assert re.search(r"^Feature: transaction.version\s.*FinalizedVersionLevel: 2\s", features, re.MULTILINE), features
    assert "No partition reassignments found" in moving
    user = Entrance.of(world.bootstrap).user
    if user:
        assert f"principal=User:{user}, host=*" in await tools.run(Tool.ACLS, "--list"), "those of the mesh"
        return
    with pytest.raises(ClientError, match=r"SecurityDisabledException: No Authorizer .*\(on c1\); .*\(on c2\)"):
        await tools.run(Tool.ACLS, "--list")


async def side_by_side(*runs: Coroutine[Any, Any, str]) -> list[str]:
    """What several tools print that need not wait for each other; if one fails, none is left running."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run) for run in runs]
    return [task.result() for task in tasks]


async def write(world: World, topics: Sequence[str], *values: str) -> None:
    """By librdkafka, as every set-up that no tool is tested by: each tool is a JVM."""
    await ConfluentClient(world.bootstrap).produce(
        [Message(each, value) for each in topics for value in values], Sending()
    )


async def have_two_records_of_each_read(world: World, group: str, topics: Sequence[str]) -> None:
    """Two records go to each topic, and the group reads all of them, by librdkafka."""
    await write(world, topics, "one", "two")
    await ConfluentClient(world.bootstrap).consume(Reading(tuple(topics), group, 2 * len(topics)))


async def read_two_records_of_each(tools: ConsoleTools, group: str, topics: Sequence[str]) -> None:
    """As `have_two_records_of_each_read`, by Kafka's tools."""
    for topic in topics:
        await tools.run(Tool.CONSOLE_PRODUCER, "--topic", topic, stdin="one\ntwo\n")
    either = ("--include", "|".join(topics), "--from-beginning", "--group", group)
    count = str(2 * len(topics))
    await tools.run(Tool.CONSOLE_CONSUMER, *either, "--max-messages", count, "--timeout-ms", TOOL_MS)


async def committed(world: World, group: str, topics: Sequence[str]) -> dict[str, int]:
    """Where the group stands in the only partition of each topic that it has an offset for."""
    found = await ConsoleAdmin(world.bootstrap).committed(group, topics)
    return {topic: offset for (topic, _), offset in found.items()}
