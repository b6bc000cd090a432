"""`explain` says where a cluster's own ACLs forbid the mesh what the mesh's ACLs allow a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)

from mesh.rpc import acls, admin, routing
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.secured_kafka import PASSWORD, SecuredKafka
from tests.integration.control.test_acls import Acls
from tests.integration.control.world import CALL, World, create_topic
from tests.integration.gateway.talking import comes_true

GATE = "gate"
"""The user that the mesh is at the secured cluster."""
ASKED_S = 30.0


@pytest.fixture
def denied(secured: SecuredKafka, unique_name: Callable[[str], str]) -> Iterator[str]:
    """A topic whose cluster forbids the mesh to write; and a group and creations of topics, likewise."""
    topic = unique_name("orders")
    create_topic(secured.bootstrap, topic, 1)
    secured.set_password(ScramMechanism.SCRAM_SHA_512, GATE, PASSWORD)
    client = AdminClient({"bootstrap.servers": secured.bootstrap})
    made = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, principal, "*", operation, permission)
        for kind, name, operation in (
            (ResourceType.TOPIC, topic, AclOperation.WRITE),
            (ResourceType.GROUP, "audit", AclOperation.READ),
            (ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
        )
        for principal, permission, operation in (
            ("User:*", AclPermissionType.ALLOW, AclOperation.ALL),
            (f"User:{GATE}", AclPermissionType.DENY, operation),
        )
    ]
    for future in client.create_acls(made).values():
        future.result(ASKED_S)
    yield topic
    every: Any = AclBindingFilter
    them = every(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
    for future in client.delete_acls([them]).values():
        future.result(ASKED_S)


async def test_explain_names_the_cluster_that_forbids_the_operation_to_the_mesh(
    world: World,
    kafka_c1: KafkaCluster,
    secured: SecuredKafka,
    denied: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_MESH_SECRET_GATE", PASSWORD)
    way = secured.way("SCRAM-SHA-512", GATE, "${env:KAFKA_MESH_SECRET_GATE}")
    await world.register("c1", kafka_c1.bootstrap)
    await world.register("c2", way.bootstrap, producer_config=way.properties)
    await world.set_rule({"topic": "sold"}, {"target_cluster": "c2", "upstream_topic": denied})
    await world.set("elsewhere", "c1")
    control = Acls(world)

    async def clusters(
        operation: acls.AclOperation.ValueType, kind: acls.AclResourceType.ValueType, name: str, **more: Any
    ) -> list[tuple[str, bool, str]]:
        request = acls.ExplainClientAccessRequest(
            principal="User:alice", operation=operation, resource_type=kind, resource_name=name, **more
        )
        answer = await control.stub.ExplainClientAccess(request, timeout=CALL)
        return [(each.cluster_name, each.forbids, each.explanation) for each in answer.clusters]

    async def becomes(expected: list[tuple[str, bool, str]], *asked: Any) -> None:
        """Brokers follow the controller, which has taken the cluster's ACLs."""
        await comes_true(lambda: clusters(*asked), expected, "the brokers have the ACLs", ASKED_S)

    topic, write, read = acls.ACL_RESOURCE_TYPE_TOPIC, acls.ACL_OPERATION_WRITE, acls.ACL_OPERATION_READ
    whom = f"to the mesh's own principal User:{GATE}"
    forbidden = f"the cluster 'c2' forbids Write topic {denied!r} {whom}"
    await becomes([("c2", True, forbidden)], write, topic, "sold")
    assert await clusters(read, topic, "sold") == []
    assert await clusters(write, topic, "elsewhere") == []
    group = acls.ACL_RESOURCE_TYPE_GROUP
    await becomes([("c2", True, f"the cluster 'c2' forbids Read group 'audit' {whom}")], read, group, "audit")
    assert await clusters(read, group, "other") == []
    mesh = acls.ACL_RESOURCE_TYPE_CLUSTER
    on_cluster = f"the cluster 'c2' forbids Create on the cluster {whom}"
    await becomes([("c2", True, on_cluster)], acls.ACL_OPERATION_CREATE, mesh, "")
    assert await clusters(write, topic, "sold", at_revision=1) == [], "clusters know no past"

    password = {"sasl.username": "alice", "sasl.password": "${env:KAFKA_MESH_SECRET_GATE}"}
    mapped = routing.UpstreamCredential(principal="User:alice", properties=password)
    identity = routing.UpstreamIdentity(mode=routing.IDENTITY_MODE_MAPPED, credentials=[mapped])
    request = admin.SetClusterIdentityRequest(name="clusters/c2", identity=identity)
    await world.clusters.SetClusterIdentity(request, timeout=CALL)
    [(name, forbids, text)] = await clusters(write, topic, "sold")
    assert (name, forbids) == ("c2", False)
    assert "clients have identities of their own (mapped)" in text


async def test_explain_says_which_cluster_could_not_be_asked(world: World) -> None:
    await world.register("c1", "127.0.0.1:1", allow_unreachable=True)
    await world.set("orders", "c1", allow_unreachable=True)
    request = acls.ExplainClientAccessRequest(
        principal="User:alice",
        operation=acls.ACL_OPERATION_WRITE,
        resource_type=acls.ACL_RESOURCE_TYPE_TOPIC,
        resource_name="orders",
    )
    answer = await Acls(world).stub.ExplainClientAccess(request, timeout=CALL)
    [verdict] = answer.clusters
    assert (verdict.cluster_name, verdict.forbids) == ("c1", False)
    assert verdict.explanation.startswith(
        "it is not known whether cluster 'c1' forbids it: cluster 'c1' at 127.0.0.1:1"
    )
