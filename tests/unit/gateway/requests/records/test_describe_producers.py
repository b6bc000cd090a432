"""Producers are described by the leaders on the owner of each topic."""

from __future__ import annotations

import pytest

from services.gateway.requests.plan import Broker, Stale, Unreachable
from services.gateway.requests.records import describe_producers
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World

MINTED = (1 << 62) + 5


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]})


def request(*topics: str) -> DescribeProducersRequest:
    return DescribeProducersRequest([TopicRequest(topic, [0]) for topic in topics])


def described(topic: str, producer_id: int = MINTED, error: int = ErrorCode.NONE) -> DescribeProducersResponse:
    producers = [] if error else [ProducerState(producer_id, 0, 9)]
    partition = PartitionResponse(0, error, None, producers)
    return DescribeProducersResponse(topics=[TopicResponse(topic, [partition])])


def test_each_partition_is_described_by_its_leader(world: World) -> None:
    book = Playbook(describe_producers.handle, request("bananas", "apples", "nowhere"), 0, world.view())
    assert [(call.cluster, call.target, call.message) for call in book.asked()] == [
        ("c2", Broker(2), request("bananas")),
        ("c1", Broker(1), request("apples")),
    ]
    book.answered(described("bananas"), described("apples", producer_id=7))
    found = [
        (topic.name, partition.error_code, [producer.producer_id for producer in partition.active_producers])
        for topic in book.answer.topics
        for partition in topic.partitions
    ]
    assert found == [("bananas", 0, [MINTED]), ("apples", 0, [7]), ("nowhere", 3, [])]


@pytest.mark.parametrize(
    "outcome", [Unreachable("c1", "down"), described("apples", error=ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_leader_that_is_gone_is_to_be_asked_again(
    world: World, outcome: Unreachable | DescribeProducersResponse
) -> None:
    book = Playbook(describe_producers.handle, request("apples"), 0, world.view())
    book.answered(outcome)
    assert book.answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert book.noted == [Stale("c1", ("apples",))]
