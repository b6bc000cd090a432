"""Clients whose small Produce shares connections: nobody can tell, whatever the others do."""

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.gateway import metrics
from services.gateway.upstream import seats
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.seats import FAIR_SHARE, SMALL_BYTES
from services.gateway.upstream.shared import Pool, SharedConnection
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import (
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.messages.produce import PartitionProduceData
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import MAX_REQUESTS, SLOW, Stage, staged
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_forwarding import code_of, numbered, refused
from tests.unit.gateway.downstream.test_order import gated, produce, written
from tests.unit.gateway.wire.records import batch

pytestmark = pytest.mark.usefixtures("patience")


@pytest.fixture
async def sharing(tmp_path: Path) -> AsyncIterator[Stage]:
    """Even a single client shares."""
    async with staged(tmp_path, shared_connections=1, share_from_clients=1) as stage:
        for there in (stage.c1, stage.c2):
            there.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        yield stage


def pool_of(stage: Stage, cluster: str = "c1") -> Pool:
    pool = stage.gateway.mesh.clusters.pool(cluster, 1, Lanes())
    assert pool is not None
    return pool


def shared_calls() -> int:
    return metrics.shared_calls.labels("c1").total


async def seated(stage: Stage, count: int = 1) -> list[RawClient]:
    """Clients whose next small Produce of apples is shared."""
    clients = []
    for _ in range(count):
        client = await stage.connect()
        before = shared_calls()
        while shared_calls() == before:
            await client.ask(produce("apples"), 9, ProduceResponse)
        clients.append(client)
    stage.c1.received.clear()
    stage.c1.bodies.clear()
    return clients


def named(name: str, number: int) -> ProduceRequest:
    return produce("apples", f"{name} {number}".encode())


def text_of(message: ProduceRequest) -> str:
    records = message.topic_data[0].partition_data[0].records
    assert records is not None
    return bytes(records)[61:].decode()


def values(stage: Stage) -> list[str]:
    """What has come to c1, in its order."""
    sent = stage.c1.requests(ApiKey.PRODUCE)
    return [text_of(message) for message in sent]


def has_more(connection: SharedConnection, than: int) -> bool:
    return connection.in_flight > than


def left(reason: str) -> float:
    value: float = metrics.left_shared.labels("c1", reason)._value.get()
    return value


async def test_many_clients_share_one_connection_and_each_hears_its_own_answers_in_order(sharing: Stage) -> None:
    offsets: dict[str, int] = {}

    def numbering(header: RequestHeader, message: ProduceRequest) -> ProduceResponse:
        value = text_of(message)
        answer = written(message)
        answer.responses[0].partition_responses[0].base_offset = offsets[value] = len(offsets)
        return answer

    clients = await seated(sharing, 10)
    sharing.c1.scripts[ApiKey.PRODUCE] = numbering
    before = shared_calls()
    for number in range(FAIR_SHARE):
        for index, client in enumerate(clients):
            client.send(named(str(index), number), 9)
    heard: dict[str, int] = {}
    for index, client in enumerate(clients):
        for number in range(FAIR_SHARE):
            answer = await client.answer(ProduceResponse)
            heard[f"{index} {number}"] = answer.responses[0].partition_responses[0].base_offset
    assert heard == offsets
    assert shared_calls() - before == 10 * FAIR_SHARE
    for index in range(10):
        mine = [value for value in values(sharing) if value.startswith(f"{index} ")]
        assert mine == [f"{index} {number}" for number in range(FAIR_SHARE)]
    assert [each.clients for each in pool_of(sharing).connections] == [10]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_they_send_together_the_order_of_each_holds(
    seed: int, sharing: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seats, "REST_S", 0.02)
    chance = random.Random(seed)
    clients = await seated(sharing, 6)
    before = shared_calls()
    sent: list[list[str]] = [[] for _ in clients]
    waiting = [0] * len(clients)
    for number in range(400):
        index = chance.randrange(len(clients))
        client, name = clients[index], f"{index} {number} "
        kind = chance.choice(("small", "small", "small", "small", "large", "two", "acks"))
        padding = "x" * SMALL_BYTES if kind == "large" else ""
        message = produce("apples", (name + padding).encode(), acks=1 if kind == "acks" else -1)
        if kind == "two":
            message.topic_data[0].partition_data.append(PartitionProduceData(1, batch(b"other partition")))
        client.send(message, 9)
        sent[index].append(name + padding)
        waiting[index] += 1
        while waiting[index] and chance.random() < 0.5:
            assert code_of(await client.answer(ProduceResponse)) == 0
            waiting[index] -= 1
    for client, count in zip(clients, waiting, strict=True):
        for _ in range(count):
            assert code_of(await client.answer(ProduceResponse)) == 0
    came = values(sharing)
    for index, mine in enumerate(sent):
        assert [value for value in came if value.startswith(f"{index} ")] == mine
    assert shared_calls() > before


async def test_nobody_shares_where_there_are_few(tmp_path: Path) -> None:
    async with staged(tmp_path, shared_connections=3, share_from_clients=4) as stage:
        stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        before = shared_calls()
        clients = [await stage.connect() for _ in range(3)]
        for _ in range(3):
            for client in clients:
                await client.ask(produce("apples"), 9, ProduceResponse)
        assert shared_calls() == before
        assert not pool_of(stage).connections
        await seated(stage, 1)
        assert len(pool_of(stage).connections) == 1


async def test_shared_connections_come_and_go_with_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.upstream.shared.CLIENTS_EACH", 2)
    async with staged(tmp_path, shared_connections=3, share_from_clients=1) as stage:
        stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        clients = await seated(stage, 8)
        pool = pool_of(stage)
        assert (pool.clients, len(pool.connections)) == (8, 3), "no more than was allowed"
        assert sum(each.clients for each in pool.connections) == 8
        for client in clients:
            client.close()
        await until(lambda: not pool.clients)
        assert not pool.connections
        await seated(stage, 1)
        assert len(pool.connections) == 1


async def test_what_needs_a_look_waits_for_what_is_unanswered_among_others(sharing: Stage) -> None:
    (client,) = await seated(sharing)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    before = shared_calls()
    client.send(named("straight", 1), 9)
    planned = named("planned", 1)
    planned.transactional_id = "t"
    client.send(planned, 9)
    client.send(named("behind", 1), 9)
    (connection,) = sharing.gateway.connections
    await until(lambda: connection.unanswered == 3)
    await until(lambda: values(sharing))
    assert values(sharing) == ["straight 1"]
    gate.set()
    for _ in range(3):
        await client.answer(ProduceResponse)
    assert values(sharing) == ["straight 1", "planned 1", "behind 1"]
    assert shared_calls() - before == 1


async def test_a_large_one_goes_its_own_way_when_the_small_ones_are_answered(sharing: Stage) -> None:
    (client,) = await seated(sharing)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    before, large = shared_calls(), left("large")
    client.send(named("small", 1), 9)
    client.send(produce("apples", b"x" * SMALL_BYTES), 9)
    client.send(named("small", 2), 9)
    await until(lambda: left("large") == large + 1)
    assert values(sharing) == ["small 1"]
    gate.set()
    for _ in range(3):
        assert code_of(await client.answer(ProduceResponse)) == 0
    assert [value[:7] for value in values(sharing)] == ["small 1", "x" * 7, "small 2"]
    await client.ask(named("small", 3), 9, ProduceResponse)
    assert shared_calls() - before == 1, "it stays away for a while"
    assert not sum(each.clients for each in pool_of(sharing).connections)


async def test_who_has_much_unanswered_leaves(sharing: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seats, "REST_S", 0.0)
    client, other = await seated(sharing, 2)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    before, many = shared_calls(), left("many")
    for number in range(MAX_REQUESTS - 1):
        client.send(named("much", number), 9)
    await until(lambda: left("many") == many + 1)
    other.send(named("other", 1), 9)
    await until(lambda: shared_calls() - before == FAIR_SHARE + 1)
    gate.set()
    for _ in range(MAX_REQUESTS - 1):
        assert code_of(await client.answer(ProduceResponse)) == 0
    await other.answer(ProduceResponse)
    mine = [value for value in values(sharing) if value.startswith("much")]
    assert mine == [f"much {number}" for number in range(MAX_REQUESTS - 1)]
    while shared_calls() - before == FAIR_SHARE + 1:  # when it has rested
        await client.ask(named("again", 1), 9, ProduceResponse)


async def test_without_acks_nobody_shares_and_a_broker_that_says_no_ends_its_client_alone(sharing: Stage) -> None:
    client, other = await seated(sharing, 2)
    before = shared_calls()
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    other.send(named("other", 1), 9)
    await until(lambda: shared_calls() == before + 1)
    connections = set(sharing.c1.connections)

    async def broken_off(header: RequestHeader, message: ProduceRequest) -> ProduceResponse | None:
        if message.acks == 0:
            raise ConnectionResetError("no")
        await gate.wait()
        return written(message)

    sharing.c1.scripts[ApiKey.PRODUCE] = broken_off
    client.send(produce("apples", b"unheard", acks=0), 9, answered=False)
    assert await client.closed() == b""
    gate.set()
    assert code_of(await other.answer(ProduceResponse)) == 0
    assert len(connections - sharing.c1.connections) == 1
    assert shared_calls() == before + 1


async def test_a_broken_connection_leaves_all_who_wait_in_doubt_and_they_go_on(sharing: Stage) -> None:
    clients = await seated(sharing, 3)
    blamed = left("broken")
    for sequence, client in enumerate(clients):
        await client.ask(numbered(sequence), 9, ProduceResponse)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    (connection,) = pool_of(sharing).connections
    for client in clients:
        before = connection.in_flight
        client.send(numbered(10), 9)
        await until(partial(has_more, connection, before))
    for there in list(sharing.c1.connections):
        there.transport.abort()
    for client in clients:
        assert code_of(await client.answer(ProduceResponse)) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert len(sharing.gateway.mesh.memory.doubts) == 1, "one producer id in this test"
    gate.set()
    sharing.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    assert left("broken") == blamed + 1
    first, *others = clients
    before = shared_calls()
    for _ in range(3):
        await first.ask(produce("apples"), 9, ProduceResponse)
    assert shared_calls() == before, "at its request the broker was: it may break the next connection too"
    for client in others:
        before = shared_calls()
        assert code_of(await client.ask(numbered(10), 9, ProduceResponse)) == 0
        while shared_calls() == before:
            await client.ask(produce("apples"), 9, ProduceResponse)
    assert pool_of(sharing).connections != [connection]


async def test_a_client_that_leaves_disturbs_nobody_and_what_it_sent_is_carried_through(sharing: Stage) -> None:
    client, other = await seated(sharing, 2)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(named("gone", 1), 9)
    client.send(named("gone", 2), 9)
    await until(lambda: values(sharing))
    other.send(named("other", 1), 9)
    (connection,) = pool_of(sharing).connections
    await until(lambda: connection.in_flight == 3)
    client.abort()
    await until(lambda: len(sharing.gateway.connections) == 1)
    gate.set()
    assert code_of(await other.answer(ProduceResponse)) == 0
    assert values(sharing) == ["gone 1", "gone 2", "other 1"]
    await until(lambda: connection.clients == 1)
    assert not sharing.gateway.mesh.producing


async def test_who_is_throttled_goes_alone_and_nobody_follows_to_where_it_was(sharing: Stage) -> None:
    client, other = await seated(sharing, 2)

    def throttled(header: RequestHeader, message: ProduceRequest) -> ProduceResponse:
        answer = written(message)
        answer.throttle_time_ms = 60_000 if "greedy" in text_of(message) else 0
        return answer

    sharing.c1.scripts[ApiKey.PRODUCE] = throttled
    before, counted = shared_calls(), left("throttled")
    answer = await client.ask(named("greedy", 1), 9, ProduceResponse)
    assert answer.throttle_time_ms == 60_000, "who is throttled hears of it"
    assert left("throttled") == counted + 1
    for _ in range(3):
        await client.ask(named("greedy", 2), 9, ProduceResponse)
        await other.ask(named("modest", 1), 9, ProduceResponse)
    assert shared_calls() == before + 1, "a connection that its broker has muted takes nothing from anybody"


async def test_nobody_stands_behind_what_is_slow_who_need_not(sharing: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = await seated(sharing, 2)
    for name in SLOW:
        monkeypatch.setattr(name, 0.25)
    gate = asyncio.Event()

    async def slow(header: RequestHeader, message: ProduceRequest) -> ProduceResponse:
        if "slow" in text_of(message):
            await gate.wait()
        return written(message)

    sharing.c1.scripts[ApiKey.PRODUCE] = slow
    client.send(named("slow", 1), 9)
    (connection,) = pool_of(sharing).connections
    loop = asyncio.get_running_loop()
    await until(lambda: connection.in_flight and not connection.takes_from_anybody(loop.time()))
    assert code_of(await other.ask(named("other", 1), 9, ProduceResponse)) == 0
    counted, before = left("slow"), shared_calls()
    gate.set()
    assert code_of(await client.answer(ProduceResponse)) == 0
    await client.ask(named("quick", 1), 9, ProduceResponse)
    assert left("slow") == counted + 1
    assert shared_calls() == before, "who had to wait goes its own way"


async def test_what_waits_for_other_replicas_is_not_shared(sharing: Stage) -> None:
    told = sharing.c1.metadata

    def replicated(header: RequestHeader, message: MetadataRequest) -> MetadataResponse:
        answer = told(message)
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.replica_nodes = [1, 2, 3]
        return answer

    (client,) = await seated(sharing)
    sharing.c1.scripts[ApiKey.METADATA] = replicated
    question = MetadataRequest([MetadataRequestTopic(name="apples")])
    await client.ask(question, 9, MetadataResponse)
    before = shared_calls()
    for _ in range(3):
        await client.ask(produce("apples"), 9, ProduceResponse)
    assert shared_calls() == before
    while shared_calls() == before:
        await client.ask(produce("apples", acks=1), 9, ProduceResponse)


async def test_a_move_waits_for_what_is_among_others(sharing: Stage) -> None:
    client, other = await seated(sharing, 2)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    for each in (client, other):
        each.send(named("old", 1), 9)
    (connection,) = pool_of(sharing).connections
    await until(lambda: connection.in_flight == 2)
    after = sharing.table(2, apples="c2", bananas="c2")
    hold = sharing.gateway.mesh.begin_hold(after)
    for each in (client, other):
        each.send(named("new", 1), 9)
    assert not hold.complete.is_set()
    gate.set()
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    sharing.gateway.mesh.end_hold(after)
    for each in (client, other):
        for _ in range(2):
            assert code_of(await each.answer(ProduceResponse)) == 0
    assert values(sharing) == ["old 1"] * 2
    assert len(sharing.c2.requests(ApiKey.PRODUCE)) == 2


async def test_an_error_is_told_to_whom_it_concerns(sharing: Stage) -> None:
    client, other = await seated(sharing, 2)

    def picky(header: RequestHeader, message: ProduceRequest) -> ProduceResponse:
        bad = "bad" in text_of(message)
        return refused(message, ErrorCode.MESSAGE_TOO_LARGE) if bad else written(message)

    sharing.c1.scripts[ApiKey.PRODUCE] = picky
    before = shared_calls()
    client.send(named("bad", 1), 9)
    other.send(named("good", 1), 9)
    assert code_of(await client.answer(ProduceResponse)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(await other.answer(ProduceResponse)) == 0
    assert shared_calls() == before + 2


async def test_how_much_is_shared_is_told(sharing: Stage) -> None:
    clients = await seated(sharing, 2)
    gate = asyncio.Event()
    sharing.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    clients[0].send(named("waiting", 1), 9)
    (connection,) = pool_of(sharing).connections
    await until(lambda: connection.in_flight == 1)
    assert {what: sample("kafka_mesh_gateway_shared_" + what) for what in ("connections", "clients", "waiting")} == {
        "connections": 1.0,
        "clients": 2.0,
        "waiting": 1.0,
    }
    gate.set()
    await clients[0].answer(ProduceResponse)


def sample(name: str) -> Any:
    return REGISTRY.get_sample_value(name, {"cluster": "c1"})
