"""Fetch of stitched logs: which part is read, and what the client sees."""

import pytest

from mesh.stitches import LogPart, Policy, StitchedLog
from services.gateway.requests.plan import Unreachable
from services.gateway.requests.records.stitched import Part
from services.gateway.wire.batches import batches
from services.gateway.wire.messages.fetch import FetchPartition, PartitionData
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records.fetching import answer, data, play, positions, raw, request
from tests.unit.gateway.requests.records.stitching import read, records_at, stitched_world


def shown(book: Playbook, topic: int = 0, version: int = 12) -> PartitionData:
    found: PartitionData = answer(book, version).responses[topic].partitions[0]
    return found


def offsets(part: PartitionData) -> list[int]:
    records = bytes(part.records or b"")
    return [each.base_offset for each in batches(records, 0, len(records))]


def marks(part: PartitionData) -> tuple[int, int, int]:
    return part.high_watermark, part.last_stable_offset, part.log_start_offset


def test_an_old_offset_is_read_where_the_record_is() -> None:
    book = play(stitched_world(), request(("apples", 42)))
    (call,) = book.gathers().calls
    assert (call.cluster, positions(call)) == ("c1", {"apples": 42})
    book.answered(raw(read(records_at(42, 43), high=100, start=7)))
    assert offsets(shown(book)) == [42, 43]
    assert marks(shown(book)) == (100, 100, 7)


def test_a_new_offset_is_read_on_the_topics_cluster_and_shifted() -> None:
    book = play(stitched_world(), request(("apples", 103)))
    (call,) = book.gathers().calls
    assert (call.cluster, positions(call)) == ("c2", {"apples": 13})
    book.answered(raw(read(records_at(13, 14), high=15, start=10)))
    assert offsets(shown(book)) == [103, 104]
    assert marks(shown(book)) == (105, 105, -1)


def test_batches_behind_the_cut_are_cut_off() -> None:
    """Somebody has written to the old cluster after the cut."""
    book = play(stitched_world(), request(("apples", 98)))
    book.answered(raw(read(records_at(98, 99, 100, 101), high=102)))
    assert offsets(shown(book)) == [98, 99]
    assert marks(shown(book))[:2] == (100, 100)


def test_aborted_transactions_are_shifted_with_their_records() -> None:
    book = play(stitched_world(), request(("apples", 103)))
    book.answered(raw(read(records_at(13, 14), high=15, aborted=((7, 13),))))
    found = shown(book)
    assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()] == [(7, 103)]


def test_an_open_transaction_in_the_old_part_is_waited_for() -> None:
    book = play(stitched_world(), request(("apples", 98)))
    book.answered(raw(read(records_at(98), high=100, stable=99)))
    assert marks(shown(book))[:2] == (100, 99)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_all_versions_show_the_offsets_of_clients(version: int) -> None:
    book = play(stitched_world(), request(("apples", 103)), version)
    book.answered(raw(read(records_at(13), high=15), version=version))
    assert offsets(shown(book, version=version)) == [103]


def test_topic_ids_lead_to_the_parts_too() -> None:
    world = stitched_world()
    wanted = request(("apples", 103), ids=True)
    world.clusters["c2"].names_edition += 1
    book = play(world, wanted, 13)
    (call,) = book.gathers().calls
    assert (call.cluster, positions(call)) == ("c2", {"apples": 13})
    book.answered(raw(read(records_at(13), high=15)))
    assert offsets(shown(book, version=13)) == [103]


def test_an_old_and_a_new_partition_come_in_one_answer() -> None:
    world = stitched_world()
    for cluster in world.clusters.values():
        known = cluster.topics["apples"]
        cluster.topics["apples"] = type(known)("apples", known.topic_id, known.leaders * 2)
    parts = [LogPart("c1", "apples", 1, (0, 0), (0, 0)), LogPart("c2", "apples", 1, (100, 50), (90, 50))]
    world.memory.stitches = Policy([StitchedLog("apples", tuple(parts))], 1)
    wanted = request(("apples", 99))
    wanted.topics[0].partitions.append(FetchPartition(1, -1, 50, partition_max_bytes=100))
    book = play(world, wanted)
    old, new = book.gathers().calls
    assert (old.cluster, new.cluster) == ("c1", "c2")
    second = read(records_at(0), high=1)
    second.partitions[0].partition_index = 1
    book.answered(raw(read(records_at(99), high=100)), raw(second))
    first, later = (
        part
        for topic in answer(book).responses
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    )
    assert (offsets(first), offsets(later)) == ([99], [50])


def test_a_topic_that_came_back_is_read_from_one_log_in_both_parts() -> None:
    for position, there, cluster in ((42, 42, "c1"), (149, 59, "c2"), (150, 105, "c1")):
        book = play(stitched_world(back=True), request(("apples", position)))
        (call,) = book.gathers().calls
        assert (call.cluster, positions(call)) == (cluster, {"apples": there})


def test_the_old_cluster_may_be_away_and_the_others_go_on() -> None:
    book = play(stitched_world(), request(("apples", 42), ("bananas", 5)))
    book.answered(Unreachable("c1", "down"), raw(data("bananas", b"b")))
    assert [(t.topic, p.error_code) for t in answer(book).responses for p in t.partitions] == [
        ("apples", 6),
        ("bananas", 0),
    ]


def test_an_old_cluster_that_is_no_longer_in_the_mesh_is_away() -> None:
    world = stitched_world()
    del world.clusters["c1"]
    book = play(world, request(("apples", 42)))
    while book.pending is not None:
        book.all_unreachable()
    assert shown(book).error_code == 6


def test_records_that_retention_has_taken_are_out_of_range() -> None:
    book = play(stitched_world(), request(("apples", 42)))
    book.answered(raw(read(error=1, high=-1, start=-1)))
    assert shown(book).error_code == 1


def test_an_offset_in_front_of_the_log_is_out_of_range_without_a_question() -> None:
    """Its cluster may have records of an earlier life of the topic there."""
    world = stitched_world()
    world.memory.stitches = Policy([StitchedLog("apples", (LogPart("c2", "apples", 1, (100,), (90,)),))], 1)
    book = play(world, request(("apples", 95)))
    assert book.pending is None
    assert shown(book).error_code == 1


def log_end(offset: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse("apples", [ListOffsetsPartitionResponse(0, 0, timestamp=-1, offset=offset)])]
    )


@pytest.mark.parametrize(("end", "error"), [(80, 1), (81, 0), (100, 0)])
def test_a_position_behind_a_lost_end_is_out_of_range_and_does_not_hang(end: int, error: int) -> None:
    """The high watermark may be behind for a moment, after another broker has become the leader."""
    book = play(stitched_world(), request(("apples", 80)))
    book.answered(raw(read(high=80)))
    (call,) = book.asked()
    assert isinstance(call.message, ListOffsetsRequest)
    assert (call.cluster, call.message.replica_id, call.own_names) == ("c1", -2, True)
    book.answered(log_end(end))
    assert shown(book).error_code == error


def test_an_old_part_with_nothing_but_strange_records_behind_its_end_does_not_hang() -> None:
    book = play(stitched_world(), request(("apples", 98)))
    book.answered(raw(read(records_at(100), high=101)))
    assert shown(book).error_code == 1


def test_sessions_have_the_offsets_of_clients() -> None:
    world = stitched_world()
    book = play(world, request(("apples", 99), epoch=0))
    book.answered(raw(read(records_at(99), high=100)))
    session = answer(book).session_id
    assert session
    onward = play(world, request(("apples", 100), session=session, epoch=1))
    (call,) = onward.gathers().calls
    assert (call.cluster, positions(call)) == ("c2", {"apples": 10})
    onward.answered(raw(read(records_at(10), high=11)))
    assert offsets(shown(onward)) == [100]
    idle = play(world, request(("apples", 101), session=session, epoch=2))
    idle.answered(raw(read(high=11)))
    assert answer(idle).responses == [], "the marks are those that the client has"


def test_requests_are_counted_by_part() -> None:
    world, counted = stitched_world(), list[Part]()
    world.memory.on_part = counted.append
    play(world, request(("apples", 42)))
    play(world, request(("apples", 142)))
    play(world, request("bananas"))
    assert counted == [Part.OLD, Part.PRESENT]


def test_other_topics_pass_as_they_come() -> None:
    book = play(World({"c1": ["apples"]}), request("apples"))
    told = raw(data("apples", b"records"))
    book.answered(told)
    assert book.answer is told
