"""More partitions for a topic: on its owner, by the owner's controller."""

from __future__ import annotations

import pytest

from services.gateway.requests.knowledge import BrokerAddress
from services.gateway.requests.plan import Controller, Lane, Stale, Unreachable
from services.gateway.requests.topics import create_partitions
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]}, by_node_id=True)


def grow(*topics: str) -> CreatePartitionsRequest:
    wanted = [CreatePartitionsTopic(name=topic, count=6, assignments=None) for topic in topics]
    return CreatePartitionsRequest(topics=wanted, timeout_ms=30_000, validate_only=True)


def grown(topic: str, error: int = ErrorCode.NONE) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=topic, error_code=error)])


def errors_of(answer: CreatePartitionsResponse) -> dict[str, int]:
    return {result.name: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_each_topic_grows_on_its_owner(world: World, version: int) -> None:
    book = Playbook(create_partitions.handle, grow("bananas", "apples"), version, world.view())
    assert [(call.cluster, call.target) for call in book.asked()] == [("c2", Controller()), ("c1", Controller())]
    for call, topic in zip(book.asked(), ["bananas", "apples"], strict=True):
        assert call.message == grow(topic)
        assert call.timeout_s > 30
        assert call.lane is Lane.CLIENT, "controllers may be slow: nobody else waits for them"
    book.answered(grown("bananas", ErrorCode.INVALID_PARTITIONS), grown("apples"))
    assert errors_of(book.answer) == {"bananas": ErrorCode.INVALID_PARTITIONS, "apples": ErrorCode.NONE}


def test_leaders_of_what_has_grown_are_asked_for_again(world: World) -> None:
    book = Playbook(create_partitions.handle, grow("apples"), 3, world.view())
    book.answered(grown("apples"))
    assert book.noted == [Stale("c1", ("apples",))]


def test_a_topic_that_no_rule_matches_is_unknown(world: World) -> None:
    [result] = Playbook(create_partitions.handle, grow("cherries"), 3, world.view()).answer.results
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "no forwarding rule matches topic 'cherries'" in str(result.error_message)


def with_brokers(world: World, *ids: int) -> World:
    """`world` with these brokers on c1."""
    world.clusters["c1"].brokers = {each: BrokerAddress(each, "c1", 9092, None) for each in ids}
    return world


def asked_of_c1(world: World, *assignments: list[int]) -> list[list[int]]:
    """The replicas of each new partition, as c1 is asked for them."""
    request = grow("apples")
    request.topics[0].assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    [call] = Playbook(create_partitions.handle, request, 3, world.view()).asked()
    assert isinstance(call.message, CreatePartitionsRequest)
    return [assignment.broker_ids for assignment in call.message.topics[0].assignments or ()]


def test_a_virtual_node_stands_for_one_broker_of_its_cluster_and_another_one_for_each_partition(world: World) -> None:
    assert asked_of_c1(with_brokers(world, 1, 2, 3), [101], [101], [101], [101]) == [[1], [2], [3], [1]]


def test_a_virtual_node_beside_a_real_broker_stands_for_another_one(world: World) -> None:
    assert asked_of_c1(with_brokers(world, 1, 2, 3), [1000001, 101, 101]) == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("replicas", "reason"),
    [
        ([102], "102 is no broker of cluster c1, the topic's owner (its brokers: 1000001 (c1/1); node 101 stands for"),
        ([101, 101], "cluster c1 has no broker left for partition 0 (its brokers: 1000001 (c1/1))"),
    ],
)
def test_replicas_that_the_owner_can_not_have_are_refused(world: World, replicas: list[int], reason: str) -> None:
    request = grow("apples", "bananas")
    request.topics[0].assignments = [CreatePartitionsAssignment(broker_ids=replicas)]
    book = Playbook(create_partitions.handle, request, 3, with_brokers(world, 1).view())
    assert [call.cluster for call in book.asked()] == ["c2"]
    book.answered(grown("bananas"))
    assert errors_of(book.answer) == {"apples": ErrorCode.INVALID_REPLICA_ASSIGNMENT, "bananas": ErrorCode.NONE}
    assert reason in str(book.answer.results[0].error_message)


def test_a_cluster_that_is_gone_fails_its_topics_only(world: World) -> None:
    book = Playbook(create_partitions.handle, grow("apples", "bananas"), 3, world.view())
    book.answered(Unreachable("c1", "connection refused"), grown("bananas"))
    assert errors_of(book.answer) == {"apples": ErrorCode.REQUEST_TIMED_OUT, "bananas": ErrorCode.NONE}
    assert "connection refused" in str(book.answer.results[0].error_message)
