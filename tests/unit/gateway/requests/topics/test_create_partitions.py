"""More partitions for a topic: on its owner, by the owner's controller."""

from __future__ import annotations

import pytest

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


def test_replicas_can_not_be_assigned_to_virtual_brokers(world: World) -> None:
    request = grow("apples", "bananas")
    request.topics[0].assignments = [CreatePartitionsAssignment(broker_ids=[101])]
    book = Playbook(create_partitions.handle, request, 3, world.view())
    assert [call.cluster for call in book.asked()] == ["c2"]
    book.answered(grown("bananas"))
    assert errors_of(book.answer) == {"apples": ErrorCode.INVALID_REPLICA_ASSIGNMENT, "bananas": ErrorCode.NONE}


def test_a_cluster_that_is_gone_fails_its_topics_only(world: World) -> None:
    book = Playbook(create_partitions.handle, grow("apples", "bananas"), 3, world.view())
    book.answered(Unreachable("c1", "connection refused"), grown("bananas"))
    assert errors_of(book.answer) == {"apples": ErrorCode.REQUEST_TIMED_OUT, "bananas": ErrorCode.NONE}
    assert "connection refused" in str(book.answer.results[0].error_message)
