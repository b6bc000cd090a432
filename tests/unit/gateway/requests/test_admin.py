"""Administration by owner: topics, settings, and the mesh as one cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.routing import RoutingTable
from mesh.validation import Mode, Policy, Rule
from services.gateway.requests.auditing.invalid import InvalidTopic
from services.gateway.requests.knowledge import VersionRange
from services.gateway.requests.mesh import describe_cluster
from services.gateway.requests.plan import AnyBroker, Broker, Controller, Unreachable
from services.gateway.requests.topic_ids import mesh_topic_id
from services.gateway.requests.topics import create_topics, delete_topics, describe_configs
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from services.gateway.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from services.gateway.wire.messages.describe_cluster import DescribeClusterRequest
from services.gateway.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from services.gateway.wire.schema import NO_UUID
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples*"], "c2": ["bananas"]}, by_node_id=True)


def creatable(name: str, partitions: int = 3) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1)


def created(*names: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=name) for name in names])


def test_topics_are_created_on_their_owners(world: World) -> None:
    request = CreateTopicsRequest(topics=[creatable("bananas"), creatable("apples-1")], timeout_ms=30_000)
    book = Playbook(create_topics.handle, request, 7, world.view())
    assert [(call.cluster, call.target) for call in book.asked()] == [("c2", Controller()), ("c1", Controller())]
    assert all(call.timeout_s > 30 for call in book.asked())
    book.answered(created("bananas"), created("apples-1"))
    assert [(t.name, t.error_code) for t in book.answer.topics] == [("bananas", 0), ("apples-1", 0)]


def test_a_topic_that_no_rule_matches_is_refused_by_name(world: World) -> None:
    book = Playbook(create_topics.handle, CreateTopicsRequest(topics=[creatable("cherries")]), 7, world.view())
    [result] = book.answer.topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "no forwarding rule matches topic 'cherries'" in str(result.error_message)


def test_a_name_that_no_topic_can_have_is_refused_as_such(world: World) -> None:
    book = Playbook(create_topics.handle, CreateTopicsRequest(topics=[creatable("a b")]), 7, world.view())
    [result] = book.answer.topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "'a b' is no topic name" in str(result.error_message)


def test_a_clusters_partition_count_is_the_default_for_its_new_topics(world: World) -> None:
    mesh = world.view()
    clusters = [replace(cluster, partition_count=5) for cluster in mesh.table.clusters.values()]
    mesh = replace(mesh, table=RoutingTable(2, clusters, mesh.table.versions))
    request = CreateTopicsRequest(topics=[creatable("apples", -1), creatable("apples-2", 2)])
    [call] = Playbook(create_topics.handle, request, 7, mesh).asked()
    assert isinstance(call.message, CreateTopicsRequest)
    assert [topic.num_partitions for topic in call.message.topics] == [5, 2]


def test_a_topic_whose_name_the_policy_refuses_is_not_created_and_the_others_are(world: World) -> None:
    told: list[InvalidTopic] = []
    world.memory.on_invalid_topic = told.append
    world.memory.new_topics = Policy(
        [
            Rule("long", "", is_prefix=True, new_name_regex=".{7,}"),
            Rule("seen", "", is_prefix=True, mode=Mode.OBSERVE, new_name_regex="x.*"),
        ]
    )
    request = CreateTopicsRequest(topics=[creatable("apples"), creatable("apples-1")])
    book = Playbook(create_topics.handle, request, 7, world.view())
    (call,) = book.asked()
    assert isinstance(call.message, CreateTopicsRequest)
    assert [topic.name for topic in call.message.topics] == ["apples-1"]
    book.answered(created("apples-1"))
    refused, made = book.answer.topics
    assert (refused.error_code, made.error_code) == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)
    assert refused.error_message == (
        "Invalid topic: the name of a new topic has to match the regular expression .{7,} (rule 'long' of the mesh)"
    )
    assert [(each.topic, each.breach.rule.rule_id, each.enforced) for each in told] == [
        ("apples", "long", True),
        ("apples-1", "seen", False),
    ]
    assert "may not create topic 'apples', because the name of a new topic has to match" in str(told[0])


def assigned(*brokers: int) -> CreateTopicsRequest:
    topic = creatable("apples", -1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(brokers))]
    return CreateTopicsRequest(topics=[topic])


def test_replicas_are_assigned_to_real_brokers_of_the_owner(world: World) -> None:
    [call] = Playbook(create_topics.handle, assigned(1000001, 1000004), 7, world.view()).asked()
    assert call.message == assigned(1, 4)


@pytest.mark.parametrize("broker", [101, 2000002])
def test_replicas_are_not_assigned_to_virtual_brokers_or_those_of_another_cluster(world: World, broker: int) -> None:
    [result] = Playbook(create_topics.handle, assigned(1000001, broker), 7, world.view()).answer.topics
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "1000001 (c1/1)" in str(result.error_message)


def test_an_owner_that_is_older_than_the_client_is_asked_in_its_version() -> None:
    world = World({"c1": ["apples"]}, upstream_versions={ApiKey.CREATE_TOPICS: VersionRange(0, 4)})
    [call] = Playbook(create_topics.handle, CreateTopicsRequest(topics=[creatable("apples")]), 7, world.view()).asked()
    assert call.version == 4


def test_what_the_owner_can_not_be_told_is_refused_by_name() -> None:
    world = World({"c1": ["apples"]}, upstream_versions={ApiKey.CREATE_TOPICS: VersionRange(0, 0)})
    request = CreateTopicsRequest(topics=[creatable("apples")], validate_only=True)
    [result] = Playbook(create_topics.handle, request, 7, world.view()).answer.topics
    assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "cluster c1" in str(result.error_message)
    assert "validate_only" in str(result.error_message)


def test_a_cluster_that_is_gone_fails_its_topics_only(world: World) -> None:
    request = CreateTopicsRequest(topics=[creatable("bananas"), creatable("apples")])
    book = Playbook(create_topics.handle, request, 7, world.view())
    book.answered(Unreachable("c2", "connection refused"), created("apples"))
    assert [t.error_code for t in book.answer.topics] == [ErrorCode.REQUEST_TIMED_OUT, 0]
    assert "connection refused" in str(book.answer.topics[0].error_message)


@pytest.mark.parametrize("version", [5, 6])
def test_topics_are_deleted_by_name_on_their_owners_only(world: World, version: int) -> None:
    names = ["bananas", "cherries"]
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version < 6:
        request.topic_names = names
    else:
        request.topics = [DeleteTopicState(name=name) for name in names]
    book = Playbook(delete_topics.handle, request, version, world.view())
    assert [call.cluster for call in book.asked()] == ["c2"]
    book.answered(DeleteTopicsResponse(responses=[DeletableTopicResult(name="bananas")]))
    assert [(r.name, r.error_code) for r in book.answer.responses] == [
        ("bananas", 0),
        ("cherries", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_topics_are_deleted_by_name_on_an_owner_that_knows_no_ids() -> None:
    world = World({"c1": ["apples"]}, upstream_versions={ApiKey.DELETE_TOPICS: VersionRange(0, 5)})
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="apples")], timeout_ms=1000)
    [call] = Playbook(delete_topics.handle, request, 6, world.view()).asked()
    assert (call.version, call.message) == (5, DeleteTopicsRequest(topic_names=["apples"], timeout_ms=1000))


def test_topics_are_deleted_by_the_meshs_own_id_and_on_their_owner(world: World) -> None:
    topic_id = mesh_topic_id("mesh-id", "bananas")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
    book = Playbook(delete_topics.handle, request, 6, world.view())
    (call,) = book.asked()
    assert call.cluster == "c2"
    assert isinstance(call.message, DeleteTopicsRequest)
    assert [topic.name for topic in call.message.topics] == ["bananas"]
    book.answered(DeleteTopicsResponse(responses=[DeletableTopicResult(name="bananas", topic_id=b"c" * 16)]))
    assert [(r.name, r.topic_id, r.error_code) for r in book.answer.responses] == [("bananas", topic_id, 0)]


def test_a_name_that_no_topic_has_is_answered_without_an_id(world: World) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="bananas")], timeout_ms=1000)
    book = Playbook(delete_topics.handle, request, 6, world.view())
    unknown = DeletableTopicResult(name="bananas", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    book.answered(DeleteTopicsResponse(responses=[unknown]))
    assert [(r.name, r.topic_id) for r in book.answer.responses] == [("bananas", NO_UUID)]


def test_a_topic_that_is_gone_has_no_id(world: World) -> None:
    topic_id = mesh_topic_id("mesh-id", "bananas")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
    book = Playbook(delete_topics.handle, request, 6, world.view())
    gone = DeletableTopicResult(name="bananas", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    book.answered(DeleteTopicsResponse(responses=[gone]))
    assert [(r.name, r.error_code) for r in book.answer.responses] == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


def config(kind: int, name: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)


def test_settings_come_from_the_owner_and_virtual_brokers_keep_their_names(world: World) -> None:
    request = DescribeConfigsRequest(resources=[config(2, "bananas"), config(4, "101"), config(2, "cherries")])
    book = Playbook(describe_configs.handle, request, 4, world.view())
    topic, broker = book.asked()
    assert (topic.cluster, topic.target) == ("c2", AnyBroker())
    assert (broker.cluster, broker.target) == ("c1", Broker(1))
    assert isinstance(broker.message, DescribeConfigsRequest)
    assert broker.message.resources[0].resource_name == "1"
    book.answered(
        DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name="bananas")]),
        DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=4, resource_name="1")]),
    )
    assert [(r.resource_name, r.error_code) for r in book.answer.results] == [
        ("bananas", 0),
        ("101", 0),
        ("cherries", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_broker_that_the_mesh_does_not_show_is_refused_with_those_it_does(world: World) -> None:
    request = DescribeConfigsRequest(resources=[config(4, "1")])
    [result] = Playbook(describe_configs.handle, request, 4, world.view()).answer.results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "101 = c1, 102 = c2" in str(result.error_message)


def test_the_mesh_is_one_cluster_with_an_id_of_its_own(world: World) -> None:
    answer = Playbook(describe_cluster.handle, DescribeClusterRequest(), 1, world.view()).answer
    assert (answer.cluster_id, answer.controller_id) == ("mesh-id", 101)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(101, "mesh", 19092), (102, "mesh", 19092)]


def test_the_mesh_has_no_controller_endpoint(world: World) -> None:
    answer = Playbook(describe_cluster.handle, DescribeClusterRequest(endpoint_type=2), 1, world.view()).answer
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
