"""Clusters are looked at before they are believed."""

from __future__ import annotations

from collections.abc import Callable

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc.error_details_pb2 import BadRequest

from mesh.rpc import admin, routing
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import World, refused, status_of

NOBODY = "127.0.0.1:1"


async def test_registering_really_connects(world: World, kafka_c1: KafkaCluster) -> None:
    cluster = await world.register("c1", kafka_c1.bootstrap)
    assert cluster.state == admin.CLUSTER_STATE_REACHABLE
    assert cluster.kafka_cluster_id
    assert [f"{broker.host}:{broker.port}" for broker in cluster.brokers] == [kafka_c1.bootstrap]
    assert int(cluster.features["metadata.version"]) > 20
    assert cluster.home
    assert cluster.revision == 1


async def test_what_does_not_answer_is_refused_unless_allowed(world: World) -> None:
    await refused(world.register("c9", NOBODY), grpc.StatusCode.UNAVAILABLE, "'c9'", NOBODY, "does not answer")
    cluster = await world.register("c9", NOBODY, allow_unreachable=True)
    assert (cluster.state, cluster.kafka_cluster_id) == (admin.CLUSTER_STATE_UNREACHABLE, "")
    assert NOBODY in cluster.state_reason


async def test_one_kafka_cluster_has_one_name(world: World, kafka_c1: KafkaCluster) -> None:
    await world.register("c1", kafka_c1.bootstrap)
    await refused(world.register("again", kafka_c1.bootstrap), grpc.StatusCode.ALREADY_EXISTS, "call it 'c1' here too")


async def test_a_wrong_property_is_named_at_once(world: World, kafka_c1: KafkaCluster) -> None:
    call = world.register("c1", kafka_c1.bootstrap, producer_config={"linger.ms": "500", "compresion.type": "zstd"})
    error = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "compresion.type", "did you mean compression.type")
    details = BadRequest()
    assert status_of(error).details[0].Unpack(details)
    assert details.field_violations[0].field == "spec.producer_config[compresion.type]"


async def test_a_literal_secret_is_refused_and_not_repeated(world: World, kafka_c1: KafkaCluster) -> None:
    call = world.register("c1", kafka_c1.bootstrap, producer_config={"sasl.password": "hunter2"})
    error = await refused(call, grpc.StatusCode.INVALID_ARGUMENT, "sasl.password", "${env:NAME}")
    assert "hunter2" not in (error.details() or "")


async def test_validate_only_looks_and_decides_nothing(world: World, kafka_c1: KafkaCluster) -> None:
    cluster = await world.register("c1", kafka_c1.bootstrap, validate_only=True)
    assert cluster.kafka_cluster_id
    assert (await world.status()).last_position == 0


async def test_testing_a_cluster_tells_what_is_there(
    world: World, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    spec = routing.ClusterSpec(cluster_name="any", bootstrap_servers=[kafka_c1.bootstrap])
    found = await world.clusters.TestCluster(admin.TestClusterRequest(spec=spec))
    assert found.cluster.state == admin.CLUSTER_STATE_REACHABLE
    assert found.topic_count >= 1  # the log itself
    spec.bootstrap_servers[:] = [NOBODY]
    missed = await world.clusters.TestCluster(admin.TestClusterRequest(spec=spec))
    assert (missed.cluster.state, missed.topic_count) == (admin.CLUSTER_STATE_UNREACHABLE, 0)


async def test_an_update_takes_its_mask_and_compares_revisions(mesh_of_two: World) -> None:
    request = admin.UpdateClusterRequest(
        name="clusters/c2",
        spec=routing.ClusterSpec(partition_count=6, bootstrap_servers=[NOBODY]),
        update_mask=FieldMask(paths=["partition_count"]),
        expected_revision=2,
    )
    updated = await mesh_of_two.clusters.UpdateCluster(request)
    assert (updated.spec.partition_count, updated.revision) == (6, 3)
    await refused(mesh_of_two.clusters.UpdateCluster(request), grpc.StatusCode.ABORTED, "'c2' is at revision 3, not 2")


async def test_an_update_to_another_kafka_cluster_is_refused(mesh_of_two: World, kafka_c1: KafkaCluster) -> None:
    request = admin.UpdateClusterRequest(
        name="clusters/c2", spec=routing.ClusterSpec(bootstrap_servers=[kafka_c1.bootstrap])
    )
    await refused(
        mesh_of_two.clusters.UpdateCluster(request), grpc.StatusCode.FAILED_PRECONDITION, "does not hold its records"
    )


async def test_a_cluster_in_use_stays_and_goes_when_it_is_free(mesh_of_two: World) -> None:
    await mesh_of_two.set("bananas", "c2")
    request = admin.RemoveClusterRequest(name="clusters/c2")
    await refused(
        mesh_of_two.clusters.RemoveCluster(request), grpc.StatusCode.FAILED_PRECONDITION, "target of rules: bananas"
    )
    await mesh_of_two.rules.RemoveRule(admin.RemoveRuleRequest(name="rules/bananas"))
    removed = await mesh_of_two.clusters.RemoveCluster(request)
    assert removed.revision == (await mesh_of_two.status()).last_position
    await refused(
        mesh_of_two.clusters.GetCluster(admin.GetClusterRequest(name="clusters/c2")), grpc.StatusCode.NOT_FOUND, "c1"
    )


async def test_lists_come_in_pages(mesh_of_two: World) -> None:
    first = await mesh_of_two.clusters.ListClusters(admin.ListClustersRequest(page_size=1))
    second = await mesh_of_two.clusters.ListClusters(
        admin.ListClustersRequest(page_size=1, page_token=first.next_page_token)
    )
    assert [c.name for c in (*first.clusters, *second.clusters)] == ["clusters/c1", "clusters/c2"]
    assert not second.next_page_token
    await refused(
        mesh_of_two.clusters.ListClusters(admin.ListClustersRequest(page_token="x")),
        grpc.StatusCode.INVALID_ARGUMENT,
        "page_token",
    )
