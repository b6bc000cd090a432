"""Many clients at once: all are served, and nothing of them stays behind."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.gateway import metrics
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from services.gateway.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.wire.records import batch

CLIENTS = 2000
FILES_OF_A_CLIENT = 2
"""Both ends of its connection are in this process."""
SPARE_FILES = 500


async def until_gone(stage: Stage) -> None:
    await until(lambda: not stage.gateway.connections, "all clients are gone")


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Stage]:
    """All of them, the gateway and its brokers are one process: on a busy machine that takes its time."""
    async with staged(tmp_path, connect_timeout_s=150, request_timeout_s=150) as stage:
        yield stage


@pytest.mark.timeout(180)
async def test_two_thousand_clients_connect_at_once(patient: Stage) -> None:
    stage = patient
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= CLIENTS * FILES_OF_A_CLIENT + SPARE_FILES, "raise `ulimit -Hn` for this test"
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = metrics.client_connections._value.get()

    async def come() -> RawClient:
        client = await RawClient.connect(stage.gateway.port)
        versions = await client.ask(ApiVersionsRequest("storm", "1"), 3, ApiVersionsResponse)
        assert not versions.error_code
        topics = [MetadataRequestTopic(name="apples")]
        found = await client.ask(MetadataRequest(topics), 9, MetadataResponse)
        while found.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE:  # clients ask again while a cluster is busy
            found = await client.ask(MetadataRequest(topics), 9, MetadataResponse)
        assert [(topic.error_code, len(topic.partitions)) for topic in found.topics] == [(0, 2)]
        return client

    clients = await asyncio.gather(*(come() for _ in range(CLIENTS)))
    assert metrics.client_connections._value.get() - before == CLIENTS
    assert len(stage.c1.connections) < 10, "questions of everybody share connections"
    for client in clients:
        client.abort()
    await until_gone(stage)
    assert stage.gateway.mesh.budget.held_bytes == 0
    assert metrics.client_connections._value.get() == before


async def test_connections_of_a_client_upstream_end_with_it(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: ProduceResponse(
        [TopicProduceResponse("apples", partition_responses=[PartitionProduceResponse(0)])]
    )
    first = await stage.connect()
    await first.ask(MetadataRequest([MetadataRequestTopic(name="apples")]), 9, MetadataResponse)
    first.abort()
    shared = len(stage.c1.connections)
    clients = [await stage.connect() for _ in range(20)]
    for client in clients:
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData("apples")])
        request.topic_data[0].partition_data = [PartitionProduceData(0, batch(b"x"))]
        await client.ask(request, 9, ProduceResponse)
    assert len(stage.c1.connections) >= shared + len(clients)
    for client in clients:
        client.abort()
    await until_gone(stage)
    await until(lambda: len(stage.c1.connections) <= shared, "only shared connections are left")


async def test_a_peer_that_is_gone_without_a_word_is_noticed_by_the_system(stage: Stage) -> None:
    """Both sides: a client's machine that lost its power, a broker behind a firewall that forgot us."""
    client = await stage.connect()
    await client.ask(MetadataRequest([MetadataRequestTopic(name="apples")]), 9, MetadataResponse)
    (connection,) = stage.gateway.connections
    assert connection._transport is not None
    accepted = connection._transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    if hasattr(socket, "TCP_KEEPIDLE"):
        silence = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        probes = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        pause = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert silence + probes * pause <= 120
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000
