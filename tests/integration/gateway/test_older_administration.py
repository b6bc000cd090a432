"""Administration by a client of today over a cluster of 2.8 and one of today: each is asked in what it speaks, and what
the older one can't be told is refused by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from services.gateway.requests.real_brokers import PER_CLUSTER
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from services.gateway.wire.messages import alter_client_quotas as quotas
from services.gateway.wire.messages.alter_configs import AlterableConfig, AlterConfigsResource
from services.gateway.wire.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from services.gateway.wire.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from services.gateway.wire.messages.create_partitions import CreatePartitionsTopic
from services.gateway.wire.messages.create_topics import CreatableTopic
from services.gateway.wire.messages.delete_topics import DeleteTopicState
from services.gateway.wire.messages.describe_configs import DescribeConfigsResource
from services.gateway.wire.messages.elect_leaders import TopicPartitions
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.older_kafka import OlderKafka
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.talking import comes_true, talking_to
from tests.unit.gateway.downstream.raw_client import RawClient

TOPIC, BROKER, GROUP, METRICS = 2, 4, 3, 16
LITERAL = 3
SHA_256 = 1
WAIT_MS = 20_000


@pytest.fixture
def gateway(
    kafka_c1: KafkaCluster, older_kafka: OlderKafka, start_gateway: StartGateway, apples: str, bananas: str
) -> Iterator[RunningGateway]:
    """Apples live on the cluster of today, bananas on the one of 2.8."""
    rules = Rules({"today": kafka_c1.bootstrap, "older": older_kafka.bootstrap})
    rules.to("today", [apples])
    yield start_gateway(rules.to("older", [bananas]))


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[RawClient]:
    async with talking_to(gateway.address) as client:
        yield client


async def test_versions_are_offered_by_who_has_to_speak_them(client: RawClient) -> None:
    told = await client.ask(ApiVersionsRequest("test", "1"), 4, ApiVersionsResponse)
    offered = {each.api_key: each.max_version for each in told.api_keys}
    assert offered[ApiKey.DESCRIBE_ACLS] == 3, "always"
    assert offered[ApiKey.CREATE_PARTITIONS] == 3, "one owner"
    assert offered[ApiKey.DESCRIBE_CLIENT_QUOTAS] == 1, "all clusters"
    assert ApiKey.LIST_CONFIG_RESOURCES not in offered, "2.8 has none"


async def test_topics_of_both(client: RawClient, apples: str, bananas: str) -> None:
    both = (apples, bananas)
    created = await client.ask(
        CreateTopicsRequest([CreatableTopic(topic, 1, 1) for topic in both], WAIT_MS), 7, CreateTopicsResponse
    )
    assert {each.name: each.error_code for each in created.topics} == dict.fromkeys(both, 0)

    growing = CreatePartitionsRequest([CreatePartitionsTopic(topic, 2, None) for topic in both], WAIT_MS)
    grown = await client.ask(growing, 3, CreatePartitionsResponse)
    assert {each.name: each.error_code for each in grown.results} == dict.fromkeys(both, 0)

    changing = [AlterConfigsResource(TOPIC, topic, [AlterableConfig("retention.ms", "86400001")]) for topic in both]
    changed = await client.ask(AlterConfigsRequest(changing), 2, AlterConfigsResponse)
    assert [each.error_code for each in changed.responses] == [0, 0]
    reading = [DescribeConfigsResource(TOPIC, topic, ["retention.ms"]) for topic in both]

    async def read() -> list[str | None]:
        asking = DescribeConfigsRequest(reading, include_documentation=True)
        told = await client.ask(asking, 4, DescribeConfigsResponse)
        return [config.value for each in told.results for config in each.configs]

    await comes_true(read, ["86400001"] * 2, "both brokers have heard of the setting")

    electing = ElectLeadersRequest(0, [TopicPartitions(topic, [0]) for topic in both], WAIT_MS)
    elected = await client.ask(electing, 2, ElectLeadersResponse)
    verdicts = [p.error_code for each in elected.replica_election_results for p in each.partition_result]
    assert verdicts == [ErrorCode.ELECTION_NOT_NEEDED] * 2

    moving = [
        ReassignableTopic(topic, [ReassignablePartition(0, [ordinal * PER_CLUSTER + 1])])
        for ordinal, topic in enumerate(both, start=1)
    ]
    moved = await client.ask(
        AlterPartitionReassignmentsRequest(WAIT_MS, topics=moving), 1, AlterPartitionReassignmentsResponse
    )
    assert [p.error_code for each in moved.responses for p in each.partitions] == [0, 0]
    listed = await client.ask(ListPartitionReassignmentsRequest(WAIT_MS), 0, ListPartitionReassignmentsResponse)
    assert listed.error_code == 0

    described = await client.ask(DescribeLogDirsRequest(None), 5, DescribeLogDirsResponse)
    assert {each.log_dir.partition(":")[0] for each in described.results} == {"today/1", "older/1"}

    deleted = await client.ask(
        DeleteTopicsRequest([DeleteTopicState(topic) for topic in both], timeout_ms=WAIT_MS), 6, DeleteTopicsResponse
    )
    assert {each.name: each.error_code for each in deleted.responses} == dict.fromkeys(both, 0)


async def test_what_is_the_same_on_both(client: RawClient, unique_name: Callable[[str], str]) -> None:
    user = unique_name("bob")
    adding = ScramCredentialUpsertion(user, SHA_256, 4096, b"salt" * 4, b"password" * 4)
    added = await client.ask(AlterUserScramCredentialsRequest([], [adding]), 0, AlterUserScramCredentialsResponse)
    assert [(each.error_code, each.error_message) for each in added.results] == [(0, None)]

    async def known() -> list[str]:
        told = await client.ask(DescribeUserScramCredentialsRequest(None), 0, DescribeUserScramCredentialsResponse)
        return [each.user for each in told.results]

    await comes_true(known, lambda users: user in users, "both brokers have heard of the user")
    gone = await client.ask(
        AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, SHA_256)]),
        0,
        AlterUserScramCredentialsResponse,
    )
    assert [each.error_code for each in gone.results] == [0]

    for remove in (False, True):
        entry = quotas.EntryData([quotas.EntityData("user", user)], [quotas.OpData("producer_byte_rate", 1e6, remove)])
        changed = await client.ask(AlterClientQuotasRequest([entry]), 1, AlterClientQuotasResponse)
        assert [(each.error_code, each.error_message) for each in changed.entries] == [(0, None)]
    described = await client.ask(DescribeClientQuotasRequest(), 1, DescribeClientQuotasResponse)
    assert described.error_code == 0

    rights = await client.ask(DescribeAclsRequest(GROUP, None, LITERAL, None, None, 1, 1), 3, DescribeAclsResponse)
    assert rights.error_code == ErrorCode.SECURITY_DISABLED
    tokens = await client.ask(DescribeDelegationTokenRequest(None), 3, DescribeDelegationTokenResponse)
    assert tokens.error_code in (
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    )


async def test_what_the_older_one_does_not_have_is_refused_by_name(client: RawClient) -> None:
    changing = AlterConfigsResource(METRICS, "m", [AlterableConfig("interval.ms", "60000")])
    changed = await client.ask(AlterConfigsRequest([changing], validate_only=True), 2, AlterConfigsResponse)
    [result] = changed.responses
    assert result.error_code != 0
    assert "(on older)" in str(result.error_message)
