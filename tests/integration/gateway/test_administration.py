"""Two real clusters administered as one, of which one has an authorizer: what has an owner reaches it alone, what has
none is the same on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from services.gateway.requests.real_brokers import PER_CLUSTER
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import alter_client_quotas as altering
from services.gateway.wire.messages import incremental_alter_configs as incremental
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from services.gateway.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from services.gateway.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from services.gateway.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from services.gateway.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from services.gateway.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from services.gateway.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from services.gateway.wire.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from services.gateway.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from services.gateway.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from services.gateway.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.secured_kafka import ADMIN_S, USER, SecuredKafka
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import RunningGateway
from tests.integration.gateway.talking import comes_true, talking_to

HOUR_MS = 3_600_000
RATE = "producer_byte_rate"
BY_USER = 0
"""Match type of a quota's entity: exactly this name."""


@pytest.fixture
def gateway(
    secured: SecuredKafka, kafka_c1: KafkaCluster, start_gateway: StartGateway, apples: str, bananas: str
) -> RunningGateway:
    """Apples live on the secured cluster, which is the mesh's home; bananas on c1."""
    way = secured.way("SCRAM-SHA-256")
    clusters = [
        UpstreamCluster("secured", (way.bootstrap,), 1, home=True, producer_config=way.properties),
        UpstreamCluster("c1", (kafka_c1.bootstrap,), 2),
    ]
    homes = {apples: "secured", bananas: "c1"}
    rules = [
        RuleVersion(ForwardingRule(f"r-{topic}", ExactName(topic), cluster), rank, 2)
        for rank, (topic, cluster) in enumerate(homes.items())
    ]
    return start_gateway(RoutingTable(2, clusters, rules))


def admin_of(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


class Rights:
    """Access rights of one user, as an admin client sees them."""

    def __init__(self, address: str, user: str) -> None:
        self._admin = admin_of(address)
        self._principal = f"User:{user}"

    def grant(self, kind: ResourceType, name: str, pattern: ResourcePatternType) -> None:
        right = AclBinding(kind, name, pattern, self._principal, "*", AclOperation.READ, AclPermissionType.ALLOW)
        for future in self._admin.create_acls([right]).values():
            future.result(ADMIN_S)

    def shown(self) -> set[str]:
        return {right.name for right in self._admin.describe_acls(self._all()).result(ADMIN_S)}

    def revoke(self) -> set[str]:
        [future] = self._admin.delete_acls([self._all()]).values()
        return {right.name for right in future.result(ADMIN_S)}

    def _all(self) -> AclBindingFilter:
        anything: Any = None  # its stubs know no filter without a name
        kinds = (ResourceType.ANY, anything, ResourcePatternType.ANY)
        return AclBindingFilter(*kinds, self._principal, anything, AclOperation.ANY, AclPermissionType.ANY)


def test_rights_lie_where_they_count_and_a_cluster_without_authorizer_says_so(
    gateway: RunningGateway, secured: SecuredKafka, apples: str, bananas: str, unique_name: Callable[[str], str]
) -> None:
    user, group = unique_name("bob"), unique_name("group")
    mesh, cluster = Rights(gateway.address, user), Rights(secured.bootstrap, user)

    mesh.grant(ResourceType.TOPIC, apples, ResourcePatternType.LITERAL)
    with pytest.raises(KafkaException) as refused:
        mesh.grant(ResourceType.TOPIC, bananas, ResourcePatternType.LITERAL)
    assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
    with pytest.raises(KafkaException, match=r"No Authorizer is configured \(on c1\); done on secured"):
        mesh.grant(ResourceType.GROUP, group, ResourcePatternType.PREFIXED)
    cluster.grant(ResourceType.TOPIC, unique_name("beside"), ResourcePatternType.LITERAL)

    # a controller answers before its brokers have heard of what it has changed
    wait_until(lambda: len(cluster.shown()) == 3, "the broker has heard of the rights")
    assert mesh.shown() == {apples, group}
    assert cluster.shown() > {apples, group}
    assert mesh.revoke() == {apples, group}
    wait_until(lambda: mesh.shown() == set(), "the broker has heard of their end")
    assert len(cluster.shown()) == 1, "a right on a topic beside the mesh stays"
    cluster.revoke()


def test_a_scram_user_is_the_same_on_all_clusters(
    gateway: RunningGateway, secured: SecuredKafka, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    user = unique_name("bob")
    mechanism = ScramMechanism.SCRAM_SHA_256

    def change(wanted: Any) -> None:
        admin = admin_of(gateway.address)  # its futures need it alive
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(ADMIN_S)

    def seen(address: str) -> list[int] | None:
        admin = admin_of(address)
        described: Any = admin.describe_user_scram_credentials([user])
        try:
            return [info.iterations for info in described[user].result(ADMIN_S).scram_credential_infos]
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND, error
            return None

    def comes_everywhere(iterations: list[int] | None) -> None:
        for address in (gateway.address, secured.bootstrap, kafka_c1.bootstrap):
            wait_until(lambda: seen(address) == iterations, f"{address} tells of {iterations}")  # noqa: B023  # at once

    change(UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"staple"))
    comes_everywhere([4096])
    way = secured.way("SCRAM-SHA-256", user=user, password="staple")
    assert AdminClient({"bootstrap.servers": way.bootstrap, **way.properties}).list_topics(timeout=ADMIN_S).brokers

    change(UserScramCredentialDeletion(user, mechanism))
    comes_everywhere(None)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_quota_is_set_on_all_clusters(
    version: int,
    gateway: RunningGateway,
    secured: SecuredKafka,
    kafka_c1: KafkaCluster,
    unique_name: Callable[[str], str],
) -> None:
    user = unique_name("bob")
    addresses = (gateway.address, secured.bootstrap, kafka_c1.bootstrap)

    async def change(value: float, *, remove: bool = False) -> None:
        entry = altering.EntryData([altering.EntityData("user", user)], [altering.OpData(RATE, value, remove)])
        async with talking_to(gateway.address) as client:
            request = altering.AlterClientQuotasRequest([entry])
            answer = await client.ask(request, version, altering.AlterClientQuotasResponse)
        assert [(e.error_code, e.error_message) for e in answer.entries] == [(ErrorCode.NONE, None)]

    async def values(address: str) -> list[float]:
        request = DescribeClientQuotasRequest([ComponentData("user", BY_USER, user)])
        async with talking_to(address) as client:
            answer = await client.ask(request, version, DescribeClientQuotasResponse)
        return [value.value for entry in answer.entries or () for value in entry.values]

    async def everywhere() -> list[list[float]]:
        return [await values(address) for address in addresses]

    await change(1e6)
    await comes_true(everywhere, [[1e6]] * 3, "all brokers have heard of the quota")
    await change(0.0, remove=True)
    await comes_true(everywhere, [[]] * 3, "all brokers have heard of its end")


async def test_a_token_is_made_listed_renewed_and_ended_on_the_only_cluster(
    secured: SecuredKafka, start_gateway: StartGateway, unique_name: Callable[[str], str]
) -> None:
    way = secured.way("SCRAM-SHA-256")
    cluster = UpstreamCluster("secured", (way.bootstrap,), 1, home=True, producer_config=way.properties)
    gateway = start_gateway(RoutingTable(2, [cluster]))
    bob = unique_name("bob")
    listing = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner("User", bob)])
    async with talking_to(gateway.address) as client:
        nobodys = await client.ask(CreateDelegationTokenRequest(), 3, CreateDelegationTokenResponse)
        assert nobodys.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

        wanted = CreateDelegationTokenRequest("User", bob, [CreatableRenewers("User", USER)], HOUR_MS)
        made = await client.ask(wanted, 3, CreateDelegationTokenResponse)
        assert (made.error_code, made.principal_name) == (ErrorCode.NONE, bob)

        async def listed() -> list[tuple[str, bytes]]:
            answer = await client.ask(listing, 3, DescribeDelegationTokenResponse)
            return [(token.token_id, bytes(token.hmac)) for token in answer.tokens]

        await comes_true(listed, [(made.token_id, bytes(made.hmac))], "the token is listed")

        renewing = RenewDelegationTokenRequest(made.hmac, HOUR_MS // 2)
        renewed = await client.ask(renewing, 2, RenewDelegationTokenResponse)
        assert (renewed.error_code, renewed.expiry_timestamp_ms > 0) == (ErrorCode.NONE, True)
        ended = await client.ask(ExpireDelegationTokenRequest(made.hmac, -1), 2, ExpireDelegationTokenResponse)
        assert ended.error_code == ErrorCode.NONE
        await comes_true(listed, [], "the token has ended")


async def test_with_two_clusters_no_token_is_made_and_those_of_one_are_listed(gateway: RunningGateway) -> None:
    async with talking_to(gateway.address) as client:
        wanted = CreateDelegationTokenRequest("User", "bob", [], HOUR_MS)
        made = await client.ask(wanted, 3, CreateDelegationTokenResponse)
        assert made.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        listed = await client.ask(DescribeDelegationTokenRequest(None), 3, DescribeDelegationTokenResponse)
        assert listed.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_features_are_for_all_clusters_or_none(version: int, gateway: RunningGateway) -> None:
    async def asked(level: int) -> UpdateFeaturesResponse:
        request = UpdateFeaturesRequest(5000, [FeatureUpdateKey("group.version", level)])
        async with talking_to(gateway.address) as client:
            return await client.ask(request, version, UpdateFeaturesResponse)

    impossible = await asked(99)
    assert impossible.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "(on secured); " in str(impossible.error_message)
    assert str(impossible.error_message).endswith("(on c1); nothing is changed")
    assert (await asked(1)).error_code == ErrorCode.NONE, "the level that both have already"


async def test_what_has_settings_is_listed_as_one_cluster(
    gateway: RunningGateway,
    secured: SecuredKafka,
    kafka_c1: KafkaCluster,
    create_topic: CreateTopic,
    apples: str,
    bananas: str,
) -> None:
    create_topic(secured, apples)
    create_topic(kafka_c1, bananas)
    create_topic(kafka_c1, f"{bananas}-beside")
    topic, broker = 2, 4
    async with talking_to(gateway.address) as client:
        listed = await client.ask(ListConfigResourcesRequest([topic, broker]), 1, ListConfigResourcesResponse)
    found = {(resource.resource_type, resource.resource_name) for resource in listed.config_resources}
    assert found == {(topic, apples), (topic, bananas), (broker, "101")}


async def test_a_subscription_to_metrics_is_the_same_on_all_clusters(
    gateway: RunningGateway, secured: SecuredKafka, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    name, metrics = unique_name("metrics"), 16
    addresses = (gateway.address, secured.bootstrap, kafka_c1.bootstrap)

    async def change(operation: AlterConfigOpType, value: str | None) -> None:
        setting = incremental.AlterableConfig("interval.ms", operation.value, value)
        resource = incremental.AlterConfigsResource(metrics, name, [setting])
        async with talking_to(gateway.address) as client:
            request = incremental.IncrementalAlterConfigsRequest([resource])
            answer = await client.ask(request, 1, incremental.IncrementalAlterConfigsResponse)
        assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]

    async def listed() -> list[bool]:
        found = []
        for address in addresses:
            async with talking_to(address) as client:
                answer = await client.ask(ListConfigResourcesRequest(), 0, ListConfigResourcesResponse)
            found.append(name in [resource.resource_name for resource in answer.config_resources])
        return found

    await change(AlterConfigOpType.SET, "60000")
    await comes_true(listed, [True] * 3, "all have the subscription")
    await change(AlterConfigOpType.DELETE, None)
    await comes_true(listed, [False] * 3, "the subscription is gone")


async def test_a_broker_leaves_the_cluster_that_its_number_tells(gateway: RunningGateway) -> None:
    async with talking_to(gateway.address) as client:
        for number, text in ((PER_CLUSTER + 77, "77"), (77, f"{PER_CLUSTER + 1} (secured/1)")):
            answer = await client.ask(UnregisterBrokerRequest(number), 0, UnregisterBrokerResponse)
            assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            assert text in str(answer.error_message)


def test_replicas_may_be_assigned_to_the_nodes_that_the_client_is_shown(gateway: RunningGateway, apples: str) -> None:
    """Most tools know no other numbers."""
    admin = AdminClient({"bootstrap.servers": gateway.address})
    node = admin.list_topics(timeout=20).controller_id
    topic = NewTopic(apples, 2, replica_assignment=[[node], [node]])
    admin.create_topics([topic])[apples].result(30)
    admin.create_partitions([NewPartitions(apples, 3, replica_assignment=[[node]])])[apples].result(30)
    wait_until(
        lambda: len(admin.list_topics(apples, timeout=20).topics[apples].partitions) == 3,
        "the brokers tell of the third partition",
    )
    admin.delete_topics([apples])[apples].result(30)


async def test_replicas_are_moved_by_the_names_of_real_brokers_and_directories(
    gateway: RunningGateway, secured: SecuredKafka, create_topic: CreateTopic, apples: str
) -> None:
    create_topic(secured, apples)
    async with talking_to(gateway.address) as client:
        asking = DescribeLogDirsRequest([DescribableLogDirTopic(apples, [0])])

        async def directories() -> list[str]:
            described = await client.ask(asking, 4, DescribeLogDirsResponse)
            return [result.log_dir for result in described.results if result.topics]

        (directory,) = await comes_true(directories, lambda found: len(found) == 1, "the log is there")
        assert directory.startswith("secured/1:/")

        async def moved_to(path: str) -> int:
            moving = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(apples, [0])])])
            answer = await client.ask(moving, 2, AlterReplicaLogDirsResponse)
            [[partition]] = [result.partitions for result in answer.results]
            return partition.error_code

        assert await moved_to(directory) == ErrorCode.NONE
        assert await moved_to(f"{directory}-none") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await moved_to(directory.replace("secured/", "c1/")) == ErrorCode.REPLICA_NOT_AVAILABLE

        async def reassigned(broker: int) -> tuple[int, str | None]:
            topic = ReassignableTopic(apples, [ReassignablePartition(0, [broker])])
            request = AlterPartitionReassignmentsRequest(5000, topics=[topic])
            answer = await client.ask(request, 0, AlterPartitionReassignmentsResponse)
            [[partition]] = [response.partitions for response in answer.responses]
            return partition.error_code, partition.error_message

        assert await reassigned(PER_CLUSTER + 1) == (ErrorCode.NONE, None)
        code, text = await reassigned(2 * PER_CLUSTER + 1)
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert f"{PER_CLUSTER + 1} (secured/1)" in str(text)
        code, _ = await reassigned(PER_CLUSTER + 7)
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the cluster itself knows no broker 7"
