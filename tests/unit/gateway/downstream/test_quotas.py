"""A client that exceeds a quota of the mesh is told for how long, and not read for so long."""

import asyncio
import time
from dataclasses import replace

import pytest

from mesh.quotas import DEFAULT, Entity, Key, Quota
from mesh.quotas.codec import quota_to_proto
from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import quotas
from services.gateway import metrics
from services.gateway.downstream import toll
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.frames import encode_request
from services.gateway.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchTopic, PartitionData
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.test_order import produce, written
from tests.unit.gateway.wire.records import batch

USER = "ANONYMOUS"
SIZE = 2_000
"""Bytes of records."""


def put_in_force(stage: Stage, *given: Quota, revision: int = 2) -> None:
    """A table with these quotas."""
    table = stage.table(1, apples="c1", bananas="c2")
    policy = quotas.QuotaPolicy(quotas=map(quota_to_proto, given), revision=revision)
    stage.gateway.mesh.run_table(
        RoutingTable(revision, table.clusters.values(), table.versions, policies=Policies(quota_policy=policy))
    )


def bytes_in(value: float, **entity: str) -> Quota:
    return Quota(Entity(**(entity or {"user": USER})), Key.PRODUCER_BYTE_RATE, value)


def broker_stores(stage: Stage, throttle_time_ms: int = 0) -> None:
    for there in (stage.c1, stage.c2):
        there.scripts[ApiKey.PRODUCE] = lambda header, message: replace(
            written(message), throttle_time_ms=throttle_time_ms
        )


def size_of(message: ProduceRequest, version: int) -> int:
    return len(encode_request(message, version, 1, "raw"))


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_an_excess_is_told_and_nothing_is_read_until_the_pause_is_over(version: int, stage: Stage) -> None:
    broker_stores(stage)
    message = produce("apples", bytes(SIZE))
    size = size_of(message, version)
    put_in_force(stage, bytes_in(size / 10))  # ten seconds' worth: one request is free
    client = await stage.connect()
    first = await client.ask(message, version, ProduceResponse)
    assert first.throttle_time_ms == 0
    put_in_force(stage, bytes_in(size), revision=3)
    for _ in range(9):
        await client.ask(message, version, ProduceResponse)
    began = time.monotonic()
    told = await client.ask(message, version, ProduceResponse)
    assert 0 < told.throttle_time_ms <= 1_000, "less, by as much as a busy machine takes for the others"
    await client.ask(message, version, ProduceResponse)
    assert time.monotonic() - began > 0.9 * told.throttle_time_ms / 1000


async def test_a_longer_pause_of_a_broker_is_told(stage: Stage) -> None:
    broker_stores(stage, throttle_time_ms=5_000)
    message = produce("apples", bytes(SIZE))
    put_in_force(stage, bytes_in(size_of(message, 9)))
    client = await stage.connect()
    for _ in range(10):
        assert (await client.ask(message, 9, ProduceResponse)).throttle_time_ms == 5_000
    assert (await client.ask(message, 9, ProduceResponse)).throttle_time_ms == 5_000


async def test_other_clients_do_not_pause_and_connections_of_one_user_share(stage: Stage) -> None:
    broker_stores(stage)
    message = produce("apples", bytes(SIZE))
    put_in_force(stage, bytes_in(size_of(message, 9) + 10, client_id="greedy"))
    greedy, twin, other = [await stage.connect() for _ in range(3)]
    for _ in range(5):
        for each in (greedy, twin):
            assert (await each.ask(message, 9, ProduceResponse, client_id="greedy")).throttle_time_ms == 0
    assert (await greedy.ask(message, 9, ProduceResponse, client_id="greedy")).throttle_time_ms > 0
    assert (await twin.ask(message, 9, ProduceResponse, client_id="greedy")).throttle_time_ms > 1_000
    for _ in range(20):
        assert (await other.ask(message, 9, ProduceResponse, client_id="modest")).throttle_time_ms == 0


async def test_a_request_that_passes_while_it_comes_is_charged_and_nothing_is_read_behind_it(stage: Stage) -> None:
    broker_stores(stage)
    message = produce("apples", bytes(300_000))
    put_in_force(stage, bytes_in(size_of(message, 9) / 20))
    client = await stage.connect()
    await client.ask(produce("apples"), 9, ProduceResponse)
    assert (await client.ask(message, 9, ProduceResponse)).throttle_time_ms > 5_000
    client.send(MetadataRequest(topics=[]), 9)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.frame()


async def test_a_request_without_acks_is_charged_too(stage: Stage) -> None:
    put_in_force(stage, bytes_in(1.0))
    before = throttled()
    client = await stage.connect()
    client.send(produce("apples", bytes(SIZE), acks=0), 9, answered=False)
    await until(lambda: throttled() == before + 1, "it is charged")


def throttled() -> float:
    return float(metrics.throttled.labels(Key.PRODUCER_BYTE_RATE.value)._value.get())


async def test_a_quota_that_is_raised_ends_the_pause(stage: Stage) -> None:
    broker_stores(stage)
    message = produce("apples", bytes(SIZE))
    put_in_force(stage, bytes_in(1.0))
    client = await stage.connect()
    assert (await client.ask(message, 9, ProduceResponse)).throttle_time_ms > 1_000_000
    client.send(message, 9)
    put_in_force(stage, bytes_in(1e9), revision=3)
    assert (await client.answer(ProduceResponse)).throttle_time_ms == 0
    put_in_force(stage, revision=4)
    assert not stage.gateway.mesh.quotas.counts
    assert (await client.ask(message, 9, ProduceResponse)).throttle_time_ms == 0


async def test_a_client_that_leaves_while_it_pauses_leaves_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toll, "LOOK_S", 0.05)
    broker_stores(stage)
    put_in_force(stage, bytes_in(1.0))
    client = await stage.connect()
    await client.ask(produce("apples", bytes(SIZE)), 9, ProduceResponse)
    client.close()
    await until(lambda: not stage.gateway.connections, "the connection is gone")
    assert metrics.throttled_connections._value.get() == 0
    assert not stage.gateway.mesh.quotas.on_change


def records_come(stage: Stage, size: int) -> list[int]:
    """Each Fetch is answered with so many bytes; the bytes that were asked for."""
    asked: list[int] = []

    def answer(header: object, message: FetchRequest) -> FetchResponse:
        asked.append(message.max_bytes)
        parts = [
            PartitionData(part.partition, 0, 9, 9, 0, records=batch(bytes(size)))
            for part in message.topics[0].partitions
        ]
        return FetchResponse(responses=[FetchableTopicResponse(message.topics[0].topic, partitions=parts)])

    stage.c1.scripts[ApiKey.FETCH] = answer
    return asked


@pytest.mark.parametrize("size", [SIZE, 200_000], ids=["as a whole", "while it arrives"])
@pytest.mark.parametrize("version", [4, 11, 12])
async def test_a_fetch_is_charged_by_its_answer_and_asks_for_no_more_than_the_quota_gives_at_once(
    version: int, size: int, stage: Stage
) -> None:
    asked = records_come(stage, size)
    put_in_force(stage, Quota(Entity(DEFAULT), Key.CONSUMER_BYTE_RATE, float(size)))
    client = await stage.connect()
    wanted = [FetchTopic("apples", partitions=[FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)])]
    message = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, topics=wanted)
    answers = [await client.ask(message, version, FetchResponse) for _ in range(9)]
    assert [each.throttle_time_ms for each in answers] == [0] * 9
    told = 0
    while not told and len(answers) < 12:
        answers.append(await client.ask(message, version, FetchResponse))
        told = answers[-1].throttle_time_ms
    assert told > 0
    assert set(asked) == {10 * size}


async def test_time_of_the_gateway_is_charged_and_costs_a_second_at_most(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_force(stage, Quota(Entity(USER), Key.REQUEST_PERCENTAGE, 0.001))
    client = await stage.connect()
    told = 0
    while not told:
        told = (await client.ask(MetadataRequest(topics=None), 9, MetadataResponse)).throttle_time_ms
    assert 0 < told <= 1_000


async def test_an_address_that_connects_too_fast_is_turned_away(stage: Stage) -> None:
    put_in_force(stage, Quota(Entity(ip=DEFAULT), Key.CONNECTION_CREATION_RATE, 1.0))
    for _ in range(10):
        early = await stage.connect()
        await early.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
    late = await stage.connect()
    late.send(MetadataRequest(topics=[]), 9)
    assert await late.closed() == b""
    put_in_force(stage, Quota(Entity(ip=DEFAULT), Key.CONNECTION_CREATION_RATE, 100.0), revision=3)
    again = await stage.connect()
    await again.ask(MetadataRequest(topics=[]), 9, MetadataResponse)
