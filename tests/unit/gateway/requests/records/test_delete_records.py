"""Records are deleted by the leaders on the owner of each topic."""

from __future__ import annotations

import pytest

from services.gateway.requests.knowledge import TopicKnowledge
from services.gateway.requests.plan import Broker, Lane, Refresh, Stale, Unreachable
from services.gateway.requests.records import delete_records
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from tests.unit.gateway.requests.playbook import Playbook, World


@pytest.fixture
def world() -> World:
    return World({"c1": ["apples"], "c2": ["bananas"]})


def request(*topics: str, partitions: tuple[int, ...] = (0,)) -> DeleteRecordsRequest:
    wanted = [DeleteRecordsTopic(t, [DeleteRecordsPartition(p, 40 + p) for p in partitions]) for t in topics]
    return DeleteRecordsRequest(wanted, 30_000)


def deleted(
    topic: str, error: int = ErrorCode.NONE, partition: int = 0, low_watermark: int = 40
) -> DeleteRecordsResponse:
    result = DeleteRecordsPartitionResult(partition, low_watermark, error)
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(topic, [result])])


def results_of(answer: DeleteRecordsResponse) -> list[tuple[str, int, int, int]]:
    return [(t.name, p.partition_index, p.low_watermark, p.error_code) for t in answer.topics for p in t.partitions]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leaders_on_the_owners_are_asked(world: World, version: int) -> None:
    book = Playbook(delete_records.handle, request("bananas", "apples", "nowhere"), version, world.view())
    bananas, apples = book.asked()
    assert (bananas.cluster, bananas.target, bananas.message) == ("c2", Broker(2), request("bananas"))
    assert (apples.cluster, apples.target, apples.message) == ("c1", Broker(1), request("apples"))
    assert bananas.timeout_s > 30
    assert bananas.lane is Lane.CLIENT, "replicas may be slow: nobody else waits for them"
    book.answered(deleted("bananas"), deleted("apples", ErrorCode.OFFSET_OUT_OF_RANGE, low_watermark=-1))
    assert results_of(book.answer) == [
        ("bananas", 0, 40, ErrorCode.NONE),
        ("apples", 0, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("nowhere", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_each_partition_goes_to_its_own_leader(world: World) -> None:
    world.clusters["c1"].topics["apples"] = TopicKnowledge("apples", bytes(16), (1, 3))
    book = Playbook(delete_records.handle, request("apples", partitions=(1, 0)), 2, world.view())
    assert [call.target for call in book.asked()] == [Broker(3), Broker(1)]
    book.answered(deleted("apples", partition=1, low_watermark=41), deleted("apples"))
    assert results_of(book.answer) == [("apples", 1, 41, ErrorCode.NONE), ("apples", 0, 40, ErrorCode.NONE)]


def test_an_unknown_leader_is_looked_for_once(world: World) -> None:
    world.clusters["c1"].doubt(["apples"])
    book = Playbook(delete_records.handle, request("apples"), 2, world.view())
    assert book.noted == [Refresh("c1", ("apples",))]
    assert results_of(book.answer) == [("apples", 0, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize("outcome", [Unreachable("c1", "down"), deleted("apples", ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_a_leader_that_is_gone_is_to_be_asked_again(world: World, outcome: Unreachable | DeleteRecordsResponse) -> None:
    book = Playbook(delete_records.handle, request("apples", "bananas"), 2, world.view())
    book.answered(outcome, deleted("bananas"))
    codes = {topic: code for topic, _, _, code in results_of(book.answer)}
    assert codes == {"apples": ErrorCode.NOT_LEADER_OR_FOLLOWER, "bananas": ErrorCode.NONE}
    assert book.noted == [Stale("c1", ("apples",))]
