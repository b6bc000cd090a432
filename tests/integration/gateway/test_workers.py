"""A gateway of two processes before real clusters: to clients one gateway, to routers two."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing, suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from zlib import crc32

import pytest
from confluent_kafka import Producer

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ShareFetchRequest, ShareFetchResponse
from services.gateway.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import until, wait_until
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.groups.test_over_clusters import Member, poll_until
from tests.integration.gateway.records import DELIVERY_S, produce, read_all
from tests.integration.gateway.running import Rules
from tests.integration.gateway.sharing import Acquired, ShareMember, set_up
from tests.integration.gateway.stored import assert_stored_once
from tests.integration.gateway.talking import comes_true, talking_to
from tests.integration.gateway.test_fetching import Reader, count
from tests.integration.gateway.test_moves import SteadyProducer, wait_for_progress
from tests.integration.gateway.transacting import LibrdkafkaTransacting, read_committed
from tests.integration.gateway.workers import APPLIED, NAME, START_S, Router, RunningWorkers, is_gone

MEMBERS = [f"{NAME}-1", f"{NAME}-2"]
PRODUCERS = 4
PROGRESS = 100
"""Records of each producer that are acknowledged before the test goes on."""
DRAIN_S = MINUTE_S = 60
CONNECTIONS = 20
"""More than the connections of earlier tests of which one worker may not have seen the end."""
OFTEN_MS = 200
"""Producers look so often where topics are, and so come from one of their connections to another."""


@pytest.fixture(scope="module")
def rules(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Rules:
    return Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})


@pytest.fixture(scope="module")
def router(rules: Rules) -> Iterator[Router]:
    router = Router(rules.table)
    yield router
    router.close()


@pytest.fixture(scope="module")
def workers(router: Router, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorkers]:
    """Two, for all tests that leave them as they are."""
    workers = RunningWorkers(
        tmp_path_factory.mktemp("workers"), ROUTER_ADDRESSES=router.address, DRAIN_TIMEOUT_S=str(DRAIN_S)
    )
    with closing(workers):
        workers.wait_until_ready()
        yield workers


@pytest.fixture
def orchard(
    workers: RunningWorkers,
    router: Router,
    rules: Rules,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    apples: str,
) -> str:
    """A topic on c1."""
    create_topic(kafka_c1, apples)
    router.move(rules.to("c1", [apples]))
    return apples


def produce_steadily(workers: RunningWorkers, topic: str) -> list[SteadyProducer]:
    config = {"enable.idempotence": True, "topic.metadata.refresh.interval.ms": OFTEN_MS}
    return [SteadyProducer(workers.address, topic, f"p{number}", **config) for number in range(PRODUCERS)]


def values_of(members: list[Member]) -> list[str]:
    return sorted(value for member in members for value in member.values)


def test_both_work_for_producers_consumers_groups_and_transactions(
    workers: RunningWorkers, orchard: str, kafka_c1: KafkaCluster, group: str
) -> None:
    values = [f"{number}" for number in range(300)]
    members = [Member(workers.address, group, [orchard]) for _ in range(2)]
    with closing(members[0]), closing(members[1]):
        poll_until("both have partitions", lambda: None if all(m.partitions for m in members) else "not yet", *members)
        produce(workers.address, orchard, values)
        read = partial(values_of, members)
        poll_until("all is read", lambda: None if read() == sorted(values) else f"{len(read())} records", *members)

    for number in range(4):  # connections of four producers: no worker is left out
        producer = LibrdkafkaTransacting(workers.address, f"{orchard}-{number}")
        producer.init()
        for committed in (True, False):
            producer.begin()
            producer.send(orchard, f"of {number}: {committed}")
            assert producer.flush() == []
            (producer.commit if committed else producer.abort)()
        producer.close()
    told = read_committed(kafka_c1.bootstrap, orchard)
    assert sorted(told) == sorted([*values, *(f"of {number}: True" for number in range(4))])

    answered = workers.metric("kafka_mesh_gateway_requests_total", outcome="answered")
    assert sorted(answered) == ["1", "2"]
    assert min(answered.values()) > 0


def test_a_rule_change_reaches_both_and_loses_nothing(
    workers: RunningWorkers,
    router: Router,
    rules: Rules,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    orchard: str,
) -> None:
    create_topic(kafka_c2, orchard)
    producers = produce_steadily(workers, orchard)
    try:
        for target in ("c2", "c1", "c2"):
            wait_for_progress(producers, PROGRESS)
            router.move(rules.to(target, [orchard]))
        wait_for_progress(producers, PROGRESS)
    finally:
        for producer in producers:
            producer.stop()
    assert [producer.faults for producer in producers] == [[]] * PRODUCERS
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    stored = [read_all(cluster.bootstrap, orchard) for cluster in (kafka_c1, kafka_c2)]
    assert all(stored), "both clusters have had their share"
    assert_stored_once(stored[0] + stored[1], acknowledged)

    assert sorted(router.said) == MEMBERS
    assert all((router.table.revision, APPLIED) in router.acks(member) for member in MEMBERS)
    assert workers.metric("kafka_mesh_gateway_table_revision") == dict.fromkeys("12", router.table.revision)


def test_nothing_is_lost_with_a_worker_that_is_killed(
    workers: RunningWorkers, orchard: str, kafka_c1: KafkaCluster
) -> None:
    producers = produce_steadily(workers, orchard)
    try:
        wait_for_progress(producers, PROGRESS)
        before = workers.pids()
        os.kill(before[1], signal.SIGKILL)
        wait_for_progress(producers, PROGRESS)
        wait_until(lambda: workers.pids().get(1, before[1]) != before[1], "worker 1 is there again", START_S)
        workers.wait_until_ready()
        wait_for_progress(producers, PROGRESS)
    finally:
        for producer in producers:
            producer.stop()
    assert [producer.faults for producer in producers] == [[]] * PRODUCERS
    acknowledged = [value for producer in producers for value in producer.acknowledged]
    assert_stored_once(read_all(kafka_c1.bootstrap, orchard), acknowledged)
    assert workers.pids()[2] == before[2], "the other one went on"
    assert workers.metric("kafka_mesh_gateway_worker_ends_total") == {"1": 1}


async def test_a_client_that_comes_back_to_the_other_worker_begins_its_sessions_anew(
    workers: RunningWorkers, orchard: str
) -> None:
    produce(workers.address, orchard, ["record-1"])
    async with AsyncExitStack() as stack:
        connect = partial(talking_to, workers.address)
        reader = Reader(await stack.enter_async_context(connect()), {(orchard, n): 0 for n in range(3)})
        found = await reader.begin()
        goes_on = FetchRequest(max_wait_ms=1, session_id=reader.session_id, session_epoch=reader.epoch + 100)
        for _ in range(CONNECTIONS):
            elsewhere = await stack.enter_async_context(connect())
            told = await elsewhere.ask(goes_on, 12, FetchResponse)
            if told.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                break
        else:
            pytest.fail("connections are even, so one is with the other worker")
        again = Reader(elsewhere, {(orchard, n): 0 for n in range(3)}, version=12)
        found = await again.begin()
        while not sum(map(count, found.values())):
            found = await again.poll()
        assert again.session_id not in (0, reader.session_id)

        share = ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=1, max_wait_ms=1, min_bytes=1)
        answer = await elsewhere.ask(share, 1, ShareFetchResponse)
        assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_share_session_goes_on_at_whichever_worker_its_member_asks(
    workers: RunningWorkers, orchard: str, group: str
) -> None:
    """franz-go has five connections, and each may be with another worker. Of several groups each worker owns some."""
    groups = [f"{group}-{number}" for number in range(6)]
    for each in groups:
        await asyncio.to_thread(set_up, workers.address, each)
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(talking_to(workers.address)) for _ in range(4)]
        turns = cycle(connections)

        async def acquire_in_turns(member: ShareMember) -> list[Acquired]:
            return await member.acquire(next(turns))

        members = [ShareMember(each, orchard) for each in groups]
        for member in members:
            await member.join(next(turns))
            assert await member.acquire(connections[0]) == []  # the session begins on this one, and ends with it
        produce(workers.address, orchard, ["record-1"])
        for member in members:
            [acquired] = await comes_true(partial(acquire_in_turns, member), bool, "the record comes")
            await member.accept(next(turns), acquired)
            assert await member.acquire(next(turns)) == []
    asked = workers.metric("kafka_mesh_gateway_requests_total", api="ShareAcknowledge", outcome="answered")
    assert min(asked["1"], asked["2"]) > 0


async def test_a_member_whose_owner_is_killed_begins_a_new_share_session(
    workers: RunningWorkers, orchard: str, group: str
) -> None:
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(talking_to(workers.address)) for _ in range(4)]
        member = ShareMember(group, orchard)
        await member.join(connections[0])
        assert await member.acquire(connections[0]) == []
        owner = 1 + crc32(f"{group}\0{member.member_id}".encode()) % 2
        before = workers.pids()
        os.kill(before[owner], signal.SIGKILL)
        wait_until(
            lambda: workers.pids().get(owner, before[owner]) != before[owner], "the owner is there again", START_S
        )
        workers.wait_until_ready()
    async with talking_to(workers.address) as again:
        answer = await member.fetch(again)
        assert answer.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        member.begin_again()
        await comes_true(lambda: member.fetch(again), lambda told: told.error_code == ErrorCode.NONE, "it goes on")


def test_no_worker_outlives_its_supervisor(router: Router, tmp_path: Path) -> None:
    workers = RunningWorkers(tmp_path, ROUTER_ADDRESSES=router.address, NAME="orphans")
    with closing(workers):
        workers.wait_until_ready()
        pids = workers.pids()
        workers.signal(signal.SIGKILL)
        workers.ended()
        wait_until(lambda: all(is_gone(pid) for pid in pids.values()), "the workers have ended")


def is_closed(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(ConnectionRefusedError), socket.create_connection((host, int(port))):
        return False
    return True


async def test_a_stop_lets_what_has_begun_end(workers: RunningWorkers, orchard: str, kafka_c1: KafkaCluster) -> None:
    """The last one of all tests: it ends the workers."""
    pids = workers.pids()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(talking_to(workers.address)) for _ in range(4)]
        for client in clients:
            wanted = [FetchTopic(orchard, partitions=[FetchPartition(0, partition_max_bytes=1000)])]
            client.send(FetchRequest(max_wait_ms=1000 * MINUTE_S, min_bytes=1, topics=wanted), 12)
        asked = partial(workers.metric, "kafka_mesh_gateway_in_flight_bytes")
        await until(lambda: min(asked().values()) > 0, "both workers have got requests")
        workers.signal(signal.SIGTERM)
        await until(lambda: is_closed(workers.address), "the gateway takes no new clients")
        producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
        producer.produce(orchard, b"what they wait for", partition=0)
        assert producer.flush(DELIVERY_S) == 0
        for client in clients:
            assert (await client.answer(FetchResponse)).error_code == 0
            assert await client.closed() == b""
    assert workers.ended() == 0, workers.log
    assert all(is_gone(pid) for pid in pids.values())
    assert "is killed" not in workers.log
