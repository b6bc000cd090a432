"""Produce and Fetch of a tenant's client are forwarded, too: under full names to the cluster, under its own back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from mesh.routing import RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import tenants as pb
from mesh.tenants import Tenant
from mesh.tenants.codec import tenant_to_proto
from services.gateway.downstream import fetch_forwarding, forwarding, turns
from services.gateway.downstream.exchange import Exchange
from services.gateway.downstream.siblings import Introduction
from services.gateway.requests.memory import Session
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.fetch import FetchableTopicResponse, PartitionData
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_fetch_forwarding import fetch
from tests.unit.gateway.downstream.test_order import produce, written
from tests.unit.gateway.wire.records import batch

Planned = Callable[[], int]
TENANT = Tenant("a", "app", ("User:ANONYMOUS",))
"""Its topic `les` is apples for the mesh; bananas is not its topic."""
LARGE = 70_000
"""Bytes of records that leave, or come, while they still arrive."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Planned:
    """How many requests went by a plan so far."""
    plans = 0

    class Counted(Exchange):
        def start(self) -> None:
            nonlocal plans
            plans += 1
            super().start()

    for module in (turns, fetch_forwarding, forwarding):
        monkeypatch.setattr(module, "Exchange", Counted)
    return lambda: plans


async def as_tenant(stage: Stage) -> RawClient:
    table = stage.table(2, apples="c1", bananas="c2")
    policy = pb.TenantPolicy(tenants=[tenant_to_proto(TENANT)], revision=2)
    versions, clusters = table.versions, table.clusters.values()
    stage.gateway.mesh.run_table(RoutingTable(2, clusters, versions, policies=Policies(tenant_policy=policy)))
    client = await stage.connect()
    shown = await client.ask(MetadataRequest(None), 12, MetadataResponse)
    assert [each.name for each in shown.topics] == ["les"]
    return client


@pytest.mark.parametrize("version", range(3, 14))
async def test_produce_has_the_full_name_at_the_cluster_and_its_own_in_the_answer(
    version: int, stage: Stage, planned: Planned
) -> None:
    def stored(header: RequestHeader, message: ProduceRequest) -> ProduceResponse:
        answer = written(message)
        answer.responses[0].partition_responses[0].base_offset = 77
        return answer

    stage.c1.scripts[ApiKey.PRODUCE] = stored
    client = await as_tenant(stage)
    wanted = [produce("les", bytes(size)) for size in (5, 200, LARGE)]
    if version >= 13:
        for message in wanted:
            message.topic_data[0].topic_id = mesh_topic_id(stage.gateway.mesh.mesh_id, "apples")
    await client.ask(wanted[0], version, ProduceResponse)
    before = planned()
    for message in wanted:
        (topic,) = (await client.ask(message, version, ProduceResponse)).responses
        assert topic.name == ("" if version >= 13 else "les")
        assert topic.partition_responses[0].base_offset == 77
    assert planned() - before == (len(wanted) if version < 9 else 0), "older versions have no compact names"
    sent = [message.topic_data[0] for message in stage.c1.requests(ApiKey.PRODUCE)]
    assert {topic.name for topic in sent} == {"apples"}
    assert [bytes(topic.partition_data[0].records) for topic in sent[1:]] == [
        batch(bytes(size)) for size in (5, 200, LARGE)
    ]


async def test_an_error_of_a_forwarded_produce_comes_back_under_the_tenants_name(stage: Stage) -> None:
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await as_tenant(stage)
    await client.ask(produce("les"), 9, ProduceResponse)

    def refused(header: RequestHeader, message: ProduceRequest) -> ProduceResponse:
        answer = written(message)
        part = answer.responses[0].partition_responses[0]
        part.error_code, part.error_message = ErrorCode.MESSAGE_TOO_LARGE, "too large for apples, it says"
        return answer

    stage.c1.scripts[ApiKey.PRODUCE] = refused
    (topic,) = (await client.ask(produce("les"), 9, ProduceResponse)).responses
    part = topic.partition_responses[0]
    assert (topic.name, part.error_code) == ("les", ErrorCode.MESSAGE_TOO_LARGE)
    assert part.error_message == "too large for les, it says"


@pytest.mark.parametrize("version", [3, 9, 12, 13])
async def test_produce_to_anothers_topic_finds_none(version: int, stage: Stage) -> None:
    client = await as_tenant(stage)
    for name in ("bananas", "apples"):
        message = produce(name)
        if version >= 13:
            message.topic_data[0].topic_id = mesh_topic_id(stage.gateway.mesh.mesh_id, "bananas")
        (topic,) = (await client.ask(message, version, ProduceResponse)).responses
        code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.partition_responses[0].error_code == code
    assert not stage.c1.requests(ApiKey.PRODUCE)
    assert not stage.c2.requests(ApiKey.PRODUCE)


@pytest.mark.parametrize("size", [5, LARGE])
@pytest.mark.parametrize("version", [4, 5, 10, 11, 12, 13])
async def test_fetch_has_the_full_name_at_the_cluster_and_its_own_in_the_answer(
    version: int, size: int, stage: Stage, planned: Planned
) -> None:
    records = batch(bytes(size))

    def found(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    each.topic,
                    partitions=[PartitionData(0, 0, 50, 50, 0 if version >= 5 else -1, records=records)],
                )
                for each in message.topics
            ]
        )

    stage.c1.scripts[ApiKey.FETCH] = found
    client = await as_tenant(stage)
    wanted = fetch("apples" if version >= 13 else "les", version=version)
    await client.ask(wanted, version, FetchResponse)
    before = planned()
    for _ in range(2):
        (topic,) = (await client.ask(replace(wanted), version, FetchResponse)).responses
        assert topic.topic == ("" if version >= 13 else "les")
        assert bytes(topic.partitions[0].records or b"") == records
    assert planned() == before
    assert {each.topic for message in stage.c1.requests(ApiKey.FETCH) for each in message.topics} == {"apples"}


async def test_a_session_by_names_goes_on_under_the_tenants_names(stage: Stage, planned: Planned) -> None:
    def found(header: RequestHeader, message: FetchRequest) -> FetchResponse:
        part = PartitionData(0, 0, 50, 50, 0, records=batch(b"x"))
        return FetchResponse(responses=[FetchableTopicResponse("apples", partitions=[part])])

    stage.c1.scripts[ApiKey.FETCH] = found
    client = await as_tenant(stage)
    began = await client.ask(fetch("les", epoch=0), 12, FetchResponse)
    assert began.session_id
    before = planned()
    for epoch in (1, 2, 3):
        named = fetch("les", session=began.session_id, epoch=epoch, offset=42 + epoch)
        (topic,) = (await client.ask(named, 12, FetchResponse)).responses
        assert topic.topic == "les"
    assert planned() == before


@pytest.mark.parametrize("version", [4, 12, 13])
async def test_fetch_of_anothers_topic_finds_none(version: int, stage: Stage) -> None:
    client = await as_tenant(stage)
    (topic,) = (await client.ask(fetch("bananas", version=version), version, FetchResponse)).responses
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.partitions[0].error_code == code
    assert topic.topic == ("" if version >= 13 else "bananas")
    assert not stage.c2.requests(ApiKey.FETCH)


async def test_a_link_of_another_worker_has_full_names_already_and_the_same_bounds(stage: Stage) -> None:
    await as_tenant(stage)
    introduction = Introduction.of(Session())
    server = await asyncio.get_running_loop().create_server(lambda: stage.gateway._met(introduction), "127.0.0.1", 0)
    async with server:
        link = await RawClient.connect(server.sockets[0].getsockname()[1])
        shown = await link.ask(MetadataRequest(None), 12, MetadataResponse)
        assert [each.name for each in shown.topics] == ["apples"]
        link.close()
