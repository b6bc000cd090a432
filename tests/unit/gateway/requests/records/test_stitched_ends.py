"""Ends, times, deletions, writes and producers of stitched logs."""

import pytest

from services.gateway.requests.plan import Unreachable
from services.gateway.requests.records import delete_records, describe_producers, list_offsets
from services.gateway.requests.records.stitched import Part
from services.gateway.requests.records.stitched_ends import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from services.gateway.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from services.gateway.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from services.gateway.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tests.unit.gateway.requests.playbook import Playbook
from tests.unit.gateway.requests.records.stitching import stitched_world
from tests.unit.gateway.requests.records.test_produce import NOTHING_STORED, play, raw, request
from tests.unit.gateway.wire.records import batch

AT_NOON = 1_700_000_000_000


def told(offset: int, timestamp: int = -1, error: int = 0) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(0, error, timestamp=timestamp, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("apples", [found])])


@pytest.mark.parametrize(
    ("timestamp", "answers", "expected"),
    [
        pytest.param(LATEST, [("c2", 15)], 105, id="the end is that of the present part"),
        pytest.param(EARLIEST, [("c1", 7)], 7, id="the first part has records"),
        pytest.param(EARLIEST, [("c1", 100), ("c2", 10)], 100, id="the first part has expired"),
        pytest.param(EARLIEST, [("c1", 105), ("c2", 10)], 100, id="strange records behind the cut are none"),
        pytest.param(EARLIEST, [("c1", 100), ("c2", 3)], 100, id="strange records in front of the part are none"),
        pytest.param(EARLIEST, [("c1", 100), ("c2", 12)], 102, id="the present part has lost records, too"),
        pytest.param(EARLIEST_LOCAL, [("c1", 50)], 50, id="local records of the first part"),
        pytest.param(EARLIEST_LOCAL, [("c1", 100), ("c2", 10)], 100, id="the first part is in the store"),
        pytest.param(AT_NOON, [("c1", 42)], 42, id="the time is in the first part"),
        pytest.param(AT_NOON, [("c1", -1), ("c2", 13)], 103, id="the time is in the present part"),
        pytest.param(AT_NOON, [("c1", 101), ("c2", 13)], 103, id="no time of strange records"),
        pytest.param(AT_NOON, [("c1", -1), ("c2", 4)], 100, id="a time in front of the part is its start"),
        pytest.param(AT_NOON, [("c1", -1), ("c2", -1)], -1, id="no record is as late"),
        pytest.param(MAX_TIMESTAMP, [("c2", 14)], 104, id="the present part has the latest time"),
        pytest.param(MAX_TIMESTAMP, [("c2", -1), ("c1", 99)], 99, id="the present part has no record"),
        pytest.param(MAX_TIMESTAMP, [("c2", 4), ("c1", 99)], 99, id="the latest time is a strange record's"),
        pytest.param(MAX_TIMESTAMP, [("c2", -1), ("c1", 100)], -1, id="the latest time is that of a strange record"),
        pytest.param(LATEST_TIERED, [("c2", 12)], 102, id="the present part is tiered"),
        pytest.param(LATEST_TIERED, [("c2", -1), ("c1", 60)], 60, id="the old part is tiered"),
        pytest.param(LATEST_TIERED, [("c2", -1), ("c1", 103)], 99, id="the old part is tiered to its end"),
    ],
)
def test_offsets_are_those_of_the_part_that_has_them(
    timestamp: int, answers: list[tuple[str, int]], expected: int
) -> None:
    message = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("apples", [ListOffsetsPartition(0, -1, timestamp)])])
    book = Playbook(list_offsets.handle, message, 7, stitched_world().view())
    for cluster, offset in answers:
        assert [call.cluster for call in book.asked()] == [cluster]
        book.answered(told(offset))
    (found,) = book.answer.topics[0].partitions
    assert (found.error_code, found.offset) == (0, expected)


def test_a_topic_that_came_back_has_its_latest_time_in_either_part() -> None:
    for there, expected in ((99, 99), (106, 151)):
        message = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("apples", [ListOffsetsPartition(0, -1, MAX_TIMESTAMP)])])
        book = Playbook(list_offsets.handle, message, 7, stitched_world(back=True).view())
        book.answered(told(there))
        assert book.answer.topics[0].partitions[0].offset == expected


def test_an_old_part_that_is_away_leaves_its_beginning_unknown() -> None:
    message = ListOffsetsRequest(-1, 0, [ListOffsetsTopic("apples", [ListOffsetsPartition(0, -1, EARLIEST)])])
    book = Playbook(list_offsets.handle, message, 7, stitched_world().view())
    book.answered(Unreachable("c1", "down"))
    assert book.answer.topics[0].partitions[0].error_code == 6


def test_other_partitions_are_asked_at_the_same_time() -> None:
    topics = [ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, EARLIEST)]) for topic in ("apples", "bananas")]
    book = Playbook(list_offsets.handle, ListOffsetsRequest(-1, 0, topics), 7, stitched_world().view())
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    bananas = ListOffsetsPartitionResponse(0, 0, timestamp=-1, offset=3)
    book.answered(told(100), ListOffsetsResponse(topics=[ListOffsetsTopicResponse("bananas", [bananas])]))
    book.answered(told(10))
    assert [(t.name, p.offset) for t in book.answer.topics for p in t.partitions] == [("apples", 100), ("bananas", 3)]


# --- DeleteRecords ---------------------------------------------------------------------------------------------------


def deleted(low_watermark: int, error: int = 0) -> DeleteRecordsResponse:
    result = DeleteRecordsPartitionResult(0, low_watermark, error)
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult("apples", [result])])


@pytest.mark.parametrize(
    ("offset", "asked", "low_watermark"),
    [
        pytest.param(42, [("c1", 42)], 42, id="in the old part"),
        pytest.param(100, [("c1", 100)], 100, id="all of the old part"),
        pytest.param(103, [("c1", 100), ("c2", 13)], 103, id="in the present part"),
        pytest.param(-1, [("c1", 100), ("c2", -1)], 105, id="all"),
    ],
)
def test_records_are_deleted_in_each_part(offset: int, asked: list[tuple[str, int]], low_watermark: int) -> None:
    message = DeleteRecordsRequest([DeleteRecordsTopic("apples", [DeleteRecordsPartition(0, offset)])], 30_000)
    book = Playbook(delete_records.handle, message, 2, stitched_world().view())
    found: list[tuple[str, int]] = []
    while book.pending is not None:
        (call,) = book.asked()
        assert isinstance(call.message, DeleteRecordsRequest)
        there = call.message.topics[0].partitions[0].offset
        found.append((call.cluster, there))
        book.answered(deleted(15 if there == -1 else there))
    assert found == asked
    (result,) = book.answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, low_watermark)


def test_nothing_is_deleted_behind_an_old_part_that_is_away() -> None:
    message = DeleteRecordsRequest([DeleteRecordsTopic("apples", [DeleteRecordsPartition(0, -1)])], 30_000)
    book = Playbook(delete_records.handle, message, 2, stitched_world().view())
    book.answered(Unreachable("c1", "down"))
    assert book.answer.topics[0].partitions[0].error_code == 6


# --- writes ----------------------------------------------------------------------------------------------------------


def test_a_producer_sees_offsets_that_go_on() -> None:
    world, counted = stitched_world(), list[Part]()
    world.memory.on_part = counted.append
    book = play(world, request(("apples", 0, batch()), ("bananas", 0, batch())))
    book.answered(*NOTHING_STORED)
    (call,) = book.asked()
    assert call.cluster == "c2"
    book.answered(raw(("apples", 0, 0), ("bananas", 0, 0)))
    found = [(t.name, p.base_offset) for t in book.answer.responses for p in t.partition_responses]
    assert found == [("apples", 190), ("bananas", 100)]
    assert counted == [Part.PRESENT]


def test_a_numbered_batch_at_the_seam_has_an_offset_that_goes_on() -> None:
    book = play(stitched_world(), request(("apples", 0, batch(producer_id=1 << 62, epoch=0, sequence=0))))
    book.answered(*NOTHING_STORED)
    book.answered(raw(("apples", 0, 0)))
    assert book.answer.responses[0].partition_responses[0].base_offset == 190


def test_a_refused_batch_has_no_offset() -> None:
    book = play(stitched_world(), request(("apples", 0, batch())))
    book.answered(*NOTHING_STORED)
    book.answered(raw(("apples", 0, 10)))
    (result,) = book.answer.responses[0].partition_responses
    assert (result.error_code, result.base_offset) == (10, -1)


def test_the_open_transactions_of_producers_begin_at_offsets_of_clients() -> None:
    book = Playbook(
        describe_producers.handle, DescribeProducersRequest([TopicRequest("apples", [0])]), 0, stitched_world().view()
    )
    (call,) = book.asked()
    assert call.cluster == "c2"
    producers = [ProducerState(7, 0, 9, current_txn_start_offset=12), ProducerState(8, 0, 9)]
    answered = DescribeProducersResponse(topics=[TopicResponse("apples", [PartitionResponse(0, 0, None, producers)])])
    book.answered(answered)
    found = [each.current_txn_start_offset for each in book.answer.topics[0].partitions[0].active_producers]
    assert found == [102, -1]
