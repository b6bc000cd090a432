"""Leaders are elected by the owners of the topics, and only for topics that the mesh shows."""

from __future__ import annotations

import pytest

from services.gateway.requests.plan import Controller, Lane, Unreachable
from services.gateway.requests.topics import elect_leaders
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from services.gateway.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.gateway.requests.playbook import Playbook, World

PREFERRED = 0


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples", "_*"], "c2": ["bananas"]})


def electing(world: World, *topics: str, version: int = 2) -> Playbook:
    return Playbook(elect_leaders.handle, request(*topics), version, world.view())


def request(*topics: str) -> ElectLeadersRequest:
    wanted = [TopicPartitions(topic, [0, 1]) for topic in topics] or None
    return ElectLeadersRequest(PREFERRED, wanted, 30_000)


def elected(topic: str, *errors: int) -> ElectLeadersResponse:
    results = [PartitionResult(partition, error, None) for partition, error in enumerate(errors)]
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(topic, results)])


def holding(*topics: str) -> MetadataResponse:
    partitions = [MetadataResponsePartition(partition_index=n) for n in (0, 1)]
    return MetadataResponse(topics=[MetadataResponseTopic(name=topic, partitions=partitions) for topic in topics])


def errors_of(book: Playbook) -> dict[str, list[int]]:
    return {r.topic: [p.error_code for p in r.partition_result] for r in book.answer.replica_election_results}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_owner_elects_leaders_of_its_topics(world: World, version: int) -> None:
    book = electing(world, "bananas", "apples", "cherries", version=version)
    assert [(call.cluster, call.target, call.message) for call in book.asked()] == [
        ("c2", Controller(), request("bananas")),
        ("c1", Controller(), request("apples")),
    ]
    assert all(call.timeout_s > 30 and call.lane is Lane.CLIENT for call in book.asked())
    book.answered(elected("bananas", ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED), elected("apples", 0, 0))
    assert errors_of(book) == {
        "bananas": [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED],
        "apples": [ErrorCode.NONE, ErrorCode.NONE],
        "cherries": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_all_partitions_are_those_that_the_mesh_shows(world: World, version: int) -> None:
    book = electing(world, version=version)
    assert [call.message for call in book.asked()] == [
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
        MetadataRequest(topics=None, allow_auto_topic_creation=False),
    ]
    book.answered(holding("apples", "bananas", "__consumer_offsets", "stray"), holding("bananas"))
    assert [(call.cluster, call.message) for call in book.asked()] == [
        ("c1", request("apples")),
        ("c2", request("bananas")),
    ]
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    book.answered(elected("apples", ErrorCode.NONE, not_needed), elected("bananas", not_needed, not_needed))
    assert errors_of(book) == {"apples": [ErrorCode.NONE]}
    assert book.answer.error_code == ErrorCode.NONE


def test_an_election_of_all_says_when_a_cluster_did_not_take_part(world: World) -> None:
    book = electing(world)
    book.answered(holding("apples"), Unreachable("c2", "down"))
    book.answered(elected("apples", 0, 0))
    assert (book.answer.error_code, errors_of(book)) == (ErrorCode.REQUEST_TIMED_OUT, {"apples": [0, 0]})


def test_a_cluster_that_is_gone_or_refuses_fails_its_partitions_only(world: World) -> None:
    book = electing(world, "apples", "bananas")
    book.answered(
        Unreachable("c1", "connection refused"),
        ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    )
    assert errors_of(book) == {
        "apples": [ErrorCode.REQUEST_TIMED_OUT] * 2,
        "bananas": [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2,
    }
    assert "connection refused" in book.answer.replica_election_results[0].partition_result[0].error_message
