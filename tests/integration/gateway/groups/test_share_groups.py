"""Share groups over two clusters by real clients: Java's and librdkafka's members, a killed gateway, a moved topic."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import ShareConsumer

from services.gateway.downstream import last_table
from services.gateway.wire.errors import RETRIABLE, ErrorCode
from services.gateway.wire.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_unless
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.gateways import gateways_side_by_side
from tests.integration.gateway.member import run_member
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.sharing import set_up
from tests.integration.gateway.talking import comes_true, talking_to
from tests.integration.gateway.workers import RunningWorkers
from tests.unit.gateway.downstream.raw_client import RawClient

COUNT = 60
SHORT_LOCKS = {"share.record.lock.duration.ms": "15000"}
"""As short as brokers allow, for groups that get the records of a member that is gone."""


@pytest.fixture
def table(
    rules: Rules, create_topic: CreateTopic, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, apples: str, bananas: str
) -> Rules:
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    rules.to("c1", [apples])
    rules.to("c2", [bananas])
    return rules


@pytest.fixture
def gateway(table: Rules, start_gateway: StartGateway, request: pytest.FixtureRequest) -> RunningGateway:
    return start_gateway(table.table, listen=f"127.0.0.1:{free_block(1)}", **getattr(request, "param", {}))


def batch(number: int, *topics: str) -> set[str]:
    return {f"{topic} {number} {n}" for topic in topics for n in range(COUNT)}


def produce_batch(bootstrap: str, number: int, *topics: str) -> set[str]:
    for topic in topics:
        produce(bootstrap, topic, sorted(batch(number, topic)))
    return batch(number, *topics)


class Member:
    """A member by librdkafka, and the records that it has accepted."""

    def __init__(self, bootstrap: str, group: str, topics: list[str]) -> None:
        self.accepted: list[str] = []
        self.faults: list[str] = []
        config = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer(config)
        self._consumer.subscribe(topics)

    def poll(self) -> None:
        read: list[str] = []
        for message in self._consumer.poll(0.5):
            if message.error() is None:
                read.append((message.value() or b"").decode())
                self._consumer.acknowledge(message)
            else:
                self.faults.append(str(message.error()))
        outcomes = self._consumer.commit_sync(30)
        failed = [str(fault) for fault in outcomes.values() if fault is not None]
        self.faults += failed
        if not failed:
            self.accepted += read

    def close(self) -> None:
        self._consumer.close()


def poll_until(what: str, obstacle: Callable[[], str | None], *members: Member) -> None:
    def unmet() -> str | None:
        for member in members:
            member.poll()
        return obstacle()

    wait_unless(unmet, what, 90)


def missing(wanted: set[str], *members: Member) -> str | None:
    """Why not all of these have been accepted."""
    lacking = wanted - {value for member in members for value in member.accepted}
    faults = [fault for member in members for fault in member.faults]
    return f"{len(lacking)} of {len(wanted)} records, such as {sorted(lacking)[:3]}; {faults[-3:]}" if lacking else None


def test_javas_member_reads_and_accepts_records_of_both_clusters(
    gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    set_up(gateway.address, group)
    expected = produce_batch(gateway.address, 0, apples, bananas)
    produce(gateway.address, apples, ["again apple"])
    produce(gateway.address, bananas, ["again banana"])
    member = run_member("share", gateway.address, group, [apples, bananas], len(expected) + 2)
    assert member.faults == []
    assert sorted(member.values) == sorted(expected | {"again apple", "again banana"})
    assert sorted(member.of("released")) == ["again apple", "again banana"]

    tools = ConsoleTools(gateway.address)
    assert lags(tools, group) == {apples: 0, bananas: 0}
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", apples, "--topic", bananas)
    asyncio.run(tools.run(Tool.SHARE_GROUPS, *reset))
    assert lags(tools, group) == {apples: COUNT + 1, bananas: COUNT + 1}
    forget = ("--delete-offsets", "--group", group, "--topic", bananas)
    asyncio.run(tools.run(Tool.SHARE_GROUPS, *forget))
    assert lags(tools, group) == {apples: COUNT + 1}
    deleted = asyncio.run(tools.run(Tool.SHARE_GROUPS, "--delete", "--group", group))
    assert "was successful" in deleted
    assert group not in asyncio.run(tools.run(Tool.SHARE_GROUPS, "--list"))


def lags(tools: ConsoleTools, group: str) -> dict[str, int]:
    """Records of each topic that nobody has accepted yet, as kafka-share-groups tells."""
    described = asyncio.run(tools.run(Tool.SHARE_GROUPS, "--describe", "--group", group))
    found: dict[str, int] = {}
    for topic, lag in re.findall(rf"^{re.escape(group)}\s+(\S+)\s+\d+\s+\d+\s+(\d+)", described, re.MULTILINE):
        found[topic] = found.get(topic, 0) + int(lag)
    return found


def test_librdkafkas_members_share_the_records_of_both_clusters(
    gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    set_up(gateway.address, group)
    expected = produce_batch(gateway.address, 0, apples, bananas)
    two = [Member(gateway.address, group, [apples, bananas]) for _ in range(2)]
    with closing(two[0]), closing(two[1]):
        poll_until("all is accepted", partial(missing, expected, *two), *two)
    assert [member.faults for member in two] == [[], []]
    assert sorted(value for member in two for value in member.accepted) == sorted(expected)


@pytest.mark.soak
def test_members_at_two_workers_share_the_records_of_both_clusters(
    table: Rules, tmp_path: Path, apples: str, bananas: str, group: str
) -> None:
    """The connections of one member come to both workers."""
    topics, javas = [apples, bananas], f"java-{group}"
    last_table.save(tmp_path / "state", table.table)
    workers = RunningWorkers(tmp_path)
    with closing(workers), ThreadPoolExecutor(1) as background:
        workers.wait_until_ready()
        for name in (group, javas):
            set_up(workers.address, name)
        expected = produce_batch(workers.address, 0, *topics)
        java = background.submit(run_member, "share", workers.address, javas, topics, len(expected))
        members = [Member(workers.address, group, topics) for _ in range(4)]
        with ExitStack() as closed:
            for member in members:
                closed.enter_context(closing(member))
            poll_until("all is accepted", partial(missing, expected, *members), *members)
        told = java.result(120)
    assert [member.faults for member in members] == [[]] * len(members)
    assert sorted(value for member in members for value in member.accepted) == sorted(expected)
    assert (sorted(told.values), told.faults) == (sorted(expected), [])


def test_the_console_share_consumer_reads_topics_of_both_clusters_in_one_group(
    gateway: RunningGateway, apples: str, bananas: str, group: str
) -> None:
    set_up(gateway.address, group)
    produce_batch(gateway.address, 0, apples, bananas)
    tools = ConsoleTools(gateway.address)
    for topic in (apples, bananas):
        wanted = ("--topic", topic, "--group", group, "--max-messages", str(COUNT), "--timeout-ms", "60000")
        printed = asyncio.run(tools.run(Tool.CONSOLE_SHARE_CONSUMER, *wanted))
        assert set(printed.split("\n")) - {""} == batch(0, topic)


def test_a_group_goes_on_with_all_its_topics_when_a_gateway_is_killed(
    table: Rules, tmp_path: Path, apples: str, bananas: str, group: str
) -> None:
    """The other gateway has not heard what the members subscribe to. Each record is accepted at least once."""
    topics, javas = [apples, bananas], f"java-{group}"
    gateways: list[subprocess.Popen[bytes]] = []
    with (
        gateways_side_by_side(2, tmp_path, table.table, gateways) as address,
        ThreadPoolExecutor(1) as background,
    ):
        for name in (group, javas):
            set_up(address, name, **SHORT_LOCKS)
        two = [Member(address, group, topics) for _ in range(2)]
        java = background.submit(run_member, "share", address, javas, topics, 4 * COUNT)
        with closing(two[0]), closing(two[1]):
            first = produce_batch(address, 1, *topics)
            poll_until("all is accepted", partial(missing, first, *two), *two)
            gateways[0].kill()
            second = produce_batch(address, 2, *topics)
            poll_until("all is accepted", partial(missing, first | second, *two), *two)
        told = java.result(120)
    assert set(told.values) == first | second


async def test_a_gateway_that_has_never_seen_a_member_knows_its_topics_on_all_clusters(
    table: Rules, start_gateway: StartGateway, apples: str, bananas: str, group: str
) -> None:
    """The member names its topics at the first gateway alone."""
    first, second = (start_gateway(table.table) for _ in range(2))
    await asyncio.to_thread(set_up, first.address, group)
    member = ShareGroupHeartbeatRequest(group, str(uuid4()), 0, None, [apples, bananas])

    async def assigned(through: RawClient) -> int:
        answer = await through.ask(member, 1, ShareGroupHeartbeatResponse)
        if answer.error_code in RETRIABLE:  # a cluster that has never had a group makes its coordinators only now
            return 0
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        member.member_epoch = answer.member_epoch
        given = answer.assignment.topic_partitions if answer.assignment is not None else []
        return sum(len(topic.partitions) for topic in given)

    async with talking_to(first.address) as client:
        await comes_true(lambda: assigned(client), 6, "the member has all partitions of both topics")
    member.subscribed_topic_names = None
    async with talking_to(second.address) as client:
        assert [await assigned(client), await assigned(client)] == [6, 6]
        member.member_epoch = -1
        assert await assigned(client) == 0
    assert await asyncio.to_thread(members_at, first.address, group) == 0


def members_at(bootstrap: str, group: str) -> int:
    described = asyncio.run(ConsoleTools(bootstrap).run(Tool.SHARE_GROUPS, "--describe", "--members", "--group", group))
    return sum(line.startswith(group) for line in described.splitlines())


@pytest.mark.soak
def test_a_topic_that_changes_its_cluster_is_read_there_by_the_same_group(
    gateway: RunningGateway,
    table: Rules,
    create_topic: CreateTopic,
    kafka_c2: KafkaCluster,
    apples: str,
    bananas: str,
    group: str,
) -> None:
    create_topic(kafka_c2, apples)
    set_up(gateway.address, group)
    expected = produce_batch(gateway.address, 1, apples, bananas)
    with closing(Member(gateway.address, group, [apples, bananas])) as member:
        poll_until("all is accepted", partial(missing, expected, member), member)
        gateway.move(table.to("c2", [apples]))
        expected |= produce_batch(gateway.address, 2, apples, bananas)
        poll_until("all is accepted", partial(missing, expected, member), member)
    assert sorted(member.accepted) == sorted(expected)
    assert member.faults == []


@pytest.mark.parametrize("gateway", [{"request_timeout_s": 4.0}], indirect=True, ids=["soon given up"])
def test_members_read_on_from_one_cluster_while_the_other_is_away(
    gateway: RunningGateway, kafka_c2: KafkaCluster, apples: str, bananas: str, group: str
) -> None:
    set_up(gateway.address, group)
    expected = produce_batch(gateway.address, 1, apples, bananas)
    with closing(Member(gateway.address, group, [apples, bananas])) as member:
        poll_until("all is accepted", partial(missing, expected, member), member)
        with kafka_c2.frozen():
            expected |= produce_batch(gateway.address, 2, apples)
            poll_until("what is there is accepted", partial(missing, expected, member), member)
        expected |= produce_batch(gateway.address, 3, bananas)
        poll_until("all is accepted", partial(missing, expected, member), member)
