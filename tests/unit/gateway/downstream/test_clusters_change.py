"""Clusters change while clients are connected: another cluster under the old name, other versions, another setting."""

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from mesh.routing import RoutingTable, UpstreamCluster
from services.gateway.requests.knowledge import VersionRange
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceResponse,
)
from services.gateway.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.test_order import gated, produce, written


def clusters_replaced(table: RoutingTable, *clusters: UpstreamCluster) -> RoutingTable:
    return RoutingTable(table.revision + 1, clusters, table.versions)


async def test_another_cluster_under_the_old_name_gets_what_connected_clients_send(stage: Stage) -> None:
    for broker in (stage.c1, stage.c2):
        broker.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    await client.ask(produce("apples"), 9, ProduceResponse)
    mesh = stage.gateway.mesh
    mesh.run_table(clusters_replaced(mesh.table, UpstreamCluster("c1", (stage.c2.address,), 1)))
    await until(lambda: mesh.clusters.known["c1"].available)
    await client.ask(produce("apples"), 9, ProduceResponse)
    assert [len(broker.requests(ApiKey.PRODUCE)) for broker in (stage.c1, stage.c2)] == [1, 1]


async def test_nothing_overtakes_what_is_unanswered_when_a_cluster_is_described_anew(stage: Stage) -> None:
    client, other = await stage.connect(), await stage.connect()
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    await client.ask(produce("apples"), 9, ProduceResponse)
    gate = asyncio.Event()
    stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
    client.send(produce("apples", b"first"), 9)
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) == 2)
    mesh = stage.gateway.mesh
    described = UpstreamCluster("c1", (stage.c1.address, stage.c2.address), 1)
    mesh.run_table(clusters_replaced(mesh.table, described))
    await until(lambda: mesh.clusters.known["c1"].available)
    client.send(produce("apples", b"second"), 9)
    connection = next(each for each in stage.gateway.connections if each.unanswered)
    await until(lambda: connection.unanswered == 2)
    other.send(produce("apples", b"other"), 9)
    await until(lambda: len(stage.c1.requests(ApiKey.PRODUCE)) == 3)
    gate.set()
    for each in (client, client, other):
        await each.answer(ProduceResponse)
    values = [message.topic_data[0].partition_data[0].records for message in stage.c1.requests(ApiKey.PRODUCE)[1:]]
    assert [bytes(each)[61:] for each in values] == [b"first", b"other", b"second"]


async def test_a_fetch_left_behind_at_another_cluster_of_that_name_answers_nobody(stage: Stage) -> None:
    def fetch() -> FetchRequest:
        topics = [FetchTopic("apples", partitions=[FetchPartition(partition=0)])]
        topics.append(FetchTopic("bananas", partitions=[FetchPartition(partition=0)]))
        return FetchRequest(max_wait_ms=20, min_bytes=1, topics=topics)

    stage.c1.scripts[ApiKey.FETCH] = lambda header, message: None  # an idle cluster
    stage.c2.scripts[ApiKey.FETCH] = lambda header, message: FetchResponse()
    client = await stage.connect()
    await client.ask(fetch(), 11, FetchResponse)
    mesh = stage.gateway.mesh
    c1, c2 = mesh.table.clusters.values()
    mesh.run_table(clusters_replaced(mesh.table, replace(c1, bootstrap_servers=(stage.c2.address,)), c2))
    await until(lambda: mesh.clusters.known["c1"].available)
    asked = len(stage.c2.requests(ApiKey.FETCH))
    await client.ask(fetch(), 11, FetchResponse)
    await until(lambda: len(stage.c2.requests(ApiKey.FETCH)) > asked + 1, "both of its names are asked anew")


async def test_a_setting_that_no_connection_depends_on_leaves_the_cluster_up(stage: Stage) -> None:
    mesh = stage.gateway.mesh
    before = mesh.clusters.known
    changed = [
        replace(cluster, partition_count=7, kafka_cluster_id="id", home=True, producer_config={"acks": "1"})
        for cluster in mesh.table.clusters.values()
    ]
    mesh.run_table(clusters_replaced(mesh.table, *changed))
    assert [mesh.clusters.known[name] is before[name] for name in ("c1", "c2")] == [True, True]
    assert mesh.clusters.known["c1"].available


async def test_a_cluster_that_has_left_the_mesh_is_not_shown_as_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.gateway.upstream.clusters.LEAVE_AFTER_S", 0.0)

    def shown() -> float | None:
        return REGISTRY.get_sample_value("kafka_mesh_gateway_cluster_up", {"cluster": "c2"})

    assert shown() == 1
    mesh = stage.gateway.mesh
    mesh.run_table(clusters_replaced(mesh.table, mesh.table.clusters["c1"]))
    await until(lambda: shown() is None, "the metric of the cluster is gone")


async def test_a_client_whose_version_is_no_longer_served_is_sent_to_ask_again(stage: Stage) -> None:
    client = await stage.connect()
    await client.ask(ListOffsetsRequest(), 9, ListOffsetsResponse)
    mesh = stage.gateway.mesh
    stage.c2.versions = {**stage.c2.versions, ApiKey.LIST_OFFSETS: VersionRange(1, 8)}
    c1, c2 = mesh.table.clusters.values()
    joined = UpstreamCluster("c3", (stage.c2.address,), 3)
    mesh.run_table(clusters_replaced(mesh.table, c1, c2, joined))
    await until(lambda: mesh.clusters.known["c3"].available)
    client.send(ListOffsetsRequest(), 9, answered=False)
    assert await client.closed() == b""
    again = await stage.connect()
    told = await again.ask(ApiVersionsRequest(), 3, ApiVersionsResponse)
    [highest] = [api.max_version for api in told.api_keys if api.api_key == ApiKey.LIST_OFFSETS]
    assert highest == 8
    assert (await again.ask(ListOffsetsRequest(), highest, ListOffsetsResponse)).topics == []


async def test_a_client_is_newer_than_a_cluster_that_joins_and_notices_nothing(stage: Stage) -> None:
    """Produce is written in the version of the cluster that it goes to."""
    stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    client = await stage.connect()
    mesh = stage.gateway.mesh
    stage.c2.versions = {**stage.c2.versions, ApiKey.PRODUCE: VersionRange(3, 8)}
    c1, c2 = mesh.table.clusters.values()
    mesh.run_table(clusters_replaced(mesh.table, c1, c2, UpstreamCluster("c3", (stage.c2.address,), 3)))
    await until(lambda: mesh.clusters.known["c3"].available)
    assert (await client.ask(produce("apples"), 9, ProduceResponse)).responses[0].name == "apples"
