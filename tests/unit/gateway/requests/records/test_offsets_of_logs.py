"""ListOffsets and OffsetForLeaderEpoch."""

from services.gateway.requests.plan import Broker, Refresh, Stale, Unreachable
from services.gateway.requests.records import list_offsets, offset_for_leader_epoch
from services.gateway.wire.messages import ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from services.gateway.wire.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from tests.unit.gateway.requests.playbook import Playbook, World


def request(*topics: str) -> ListOffsetsRequest:
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic(t, [ListOffsetsPartition(0, 4, -1)]) for t in topics])


def told(topic: str, offset: int, error: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(0, error, timestamp=-1, offset=offset, leader_epoch=4)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(topic, [found])])


def test_leaders_are_asked_and_epochs_stay_behind() -> None:
    world = World({"c1": ["apples"], "c2": ["bananas"]})
    book = Playbook(list_offsets.handle, request("bananas", "apples", "nowhere"), 7, world.view())
    bananas, apples = book.asked()
    assert (bananas.cluster, bananas.target, apples.cluster) == ("c2", Broker(2), "c1")
    assert isinstance(bananas.message, ListOffsetsRequest)
    assert bananas.message.topics[0].partitions[0].current_leader_epoch == -1
    book.answered(told("bananas", 20), told("apples", 10))
    found = [(t.name, p.error_code, p.offset, p.leader_epoch) for t in book.answer.topics for p in t.partitions]
    assert found == [("bananas", 0, 20, -1), ("apples", 0, 10, -1), ("nowhere", 3, -1, -1)]


def test_an_unknown_leader_is_looked_for_once() -> None:
    world = World({"c1": ["apples"]})
    world.clusters["c1"].doubt(["apples"])
    book = Playbook(list_offsets.handle, request("apples"), 7, world.view())
    assert book.noted == [Refresh("c1", ("apples",))]
    assert book.answer.topics[0].partitions[0].error_code == 6


def test_an_unreachable_leader_is_to_be_asked_again() -> None:
    book = Playbook(list_offsets.handle, request("apples"), 7, World({"c1": ["apples"]}).view())
    book.answered(Unreachable("c1", "down"))
    assert book.answer.topics[0].partitions[0].error_code == 6
    assert book.noted == [Stale("c1", ("apples",))]


def test_no_log_was_ever_truncated() -> None:
    message = OffsetForLeaderEpochRequest(
        -1, [OffsetForLeaderTopic(t, [OffsetForLeaderPartition(0, 5, 3)]) for t in ("apples", "nowhere")]
    )
    book = Playbook(offset_for_leader_epoch.handle, message, 4, World({"c1": ["apples"]}).view())
    found = [(p.error_code, p.leader_epoch, p.end_offset) for t in book.answer.topics for p in t.partitions]
    assert found == [(0, 3, (1 << 63) - 1), (3, 3, -1)]
