"""What is copied of each partition, by which task, how fast."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import replays
from services.control.domain.replays.replays import MAX_COPIED
from services.pipeline.copying import offsets as planning
from services.pipeline.copying.errors import CopyError, RefusedError
from services.pipeline.copying.notes import Note
from services.pipeline.copying.offsets import Held, Left, Stretch, Times
from services.pipeline.kafka.positions import PartitionLog, Span

PLACE = ("apples", 0)


def range_(**said: Any) -> replays.ReplayRange:
    return replays.ReplayRange(topic="apples", **said)


def stretch(asked: replays.ReplayRange, held: Held, times: Times | None = None, *, only: bool = False) -> Stretch:
    return planning.stretch(PLACE, asked, held, times or Times(), archive_only=only)


def test_all_of_a_topic_is_each_of_its_partitions() -> None:
    assert set(planning.asked([range_()], {"apples": 3})) == {("apples", 0), ("apples", 1), ("apples", 2)}


def test_a_partition_that_there_is_not_is_refused() -> None:
    with pytest.raises(RefusedError, match="has 3 partitions, from 0 to 2; 3 is none of them"):
        planning.asked([range_(partition=3)], {"apples": 3})


def test_more_partitions_than_control_takes_are_refused() -> None:
    assert planning.MOST_PARTITIONS == MAX_COPIED
    planning.check_number(MAX_COPIED)
    with pytest.raises(RefusedError, match="10001 partitions are more than 10000; make several replays"):
        planning.check_number(MAX_COPIED + 1)


def test_one_range_for_each_partition() -> None:
    with pytest.raises(RefusedError, match="apples/1 stands in two ranges"):
        planning.asked([range_(), range_(partition=1)], {"apples": 3})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, (10, 90)),
        ({"start_offset": 20}, (20, 90)),
        ({"start_offset": 5}, (10, 90)),  # what retention took is not there any more
        ({"start_offset": 200}, (90, 90)),
        ({"end_offset": 50}, (10, 50)),
        ({"end_offset": 95}, (10, 95)),  # in a transaction that is open: it is waited for
        ({"end_offset": 500}, (10, 100)),
        ({"start_offset": 20, "end_offset": 30}, (20, 30)),
        ({"end_offset": 3}, (10, 10)),
    ],
)
def test_offsets(said: dict[str, int], expected: tuple[int, int]) -> None:
    found = stretch(range_(partition=0, **said), Held(PartitionLog(10, 90), high=100))
    assert (found.start, found.end) == expected


def test_times_are_the_offsets_of_the_first_records_that_are_not_older() -> None:
    asked = range_(start_time=Timestamp(seconds=1), end_time=Timestamp(seconds=2))
    log = Held(PartitionLog(0, 90), high=90)
    assert stretch(asked, log, Times({PLACE: 30}, {PLACE: 60})) == Stretch(30, 60)
    assert stretch(asked, log, Times({PLACE: 30}, {PLACE: planning.NOWHERE})) == Stretch(30, 90)
    assert stretch(asked, log, Times({PLACE: planning.NOWHERE}, {PLACE: planning.NOWHERE})) == Stretch(90, 90)


def test_the_archive_has_what_lies_before_the_log() -> None:
    held = Held(PartitionLog(100, 200), PartitionLog(0, 150), high=200)
    assert stretch(range_(), held) == Stretch(0, 200)
    assert left(Note("", 0, 200, 0, 0, 0), held) == Left(Span(*PLACE, 0, 100), Span("up.apples", 0, 100, 200))
    assert left(Note("", 0, 200, 0, 0, 120), held) == Left(None, Span("up.apples", 0, 120, 200))


def test_the_archive_alone_is_a_restore() -> None:
    held = Held(PartitionLog(0, 0), PartitionLog(5, 150))
    assert stretch(range_(), held, only=True) == Stretch(5, 150)
    assert left(Note("", 5, 150, 0, 0, 5), held, only=True) == Left(Span(*PLACE, 5, 150), None)


def test_what_nobody_holds_is_told_when_it_is_planned_and_an_error_when_it_goes_later() -> None:
    held = Held(PartitionLog(100, 200), PartitionLog(0, 80), high=200)
    planned = stretch(range_(), held)
    assert planned == Stretch(0, 200, lost=20, lost_until=100)
    note = Note("", planned.start, planned.end, planned.lost, 0, 0, lost_until=planned.lost_until)
    assert left(note, held) == Left(Span(*PLACE, 0, 80), Span("up.apples", 0, 100, 200))
    with pytest.raises(CopyError, match="apples/0: 40 offsets from 80 on are neither in Kafka"):
        left(note, Held(PartitionLog(120, 200), PartitionLog(0, 80), high=200))


def test_what_was_lost_before_does_not_excuse_what_is_lost_behind_it() -> None:
    planned = stretch(range_(), Held(PartitionLog(100, 200), PartitionLog(0, 95), high=200))
    note = Note("", planned.start, planned.end, planned.lost, 0, position=110, lost_until=planned.lost_until)
    assert planned.lost == 5
    with pytest.raises(CopyError, match="apples/0: 5 offsets from 110 on are neither in Kafka"):
        left(note, Held(PartitionLog(115, 200), PartitionLog(0, 95), high=200))


def test_a_log_that_ends_before_what_is_left_is_another_one() -> None:
    with pytest.raises(CopyError, match="apples/0 ends at offset 80, and was to be copied up to 100"):
        left(Note("", 0, 100, 0, 0, position=20), Held(PartitionLog(0, 80), high=80))
    assert left(Note("", 0, 100, 0, 0, position=100), Held(PartitionLog(0, 80), high=80)) == Left(None, None)


def left(note: Note, held: Held, *, only: bool = False) -> Left:
    return planning.left(PLACE, note, held, "up.apples", archive_only=only)


def test_without_an_archive_kafka_tells_what_is_gone() -> None:
    held = Held(PartitionLog(100, 200), high=200)
    assert left(Note("", 0, 200, 0, 0, 50), held) == Left(None, Span("up.apples", 0, 50, 200))


def test_few_partitions_have_a_lane_each_and_thousands_share_some() -> None:
    assert planning.lane_count(12, 2, limited=False) == 12
    assert planning.lane_count(2_000, 2, limited=False) == planning.FEWEST_LANES
    assert planning.lane_count(20_000, 1_000, limited=False) == planning.MOST_LANES
    assert planning.lane_count(2_000, 2, limited=True) == 2
    assert planning.lane_count(0, 2, limited=False) == 1


def test_lanes_have_about_the_same_to_do_however_skewed_partitions_are() -> None:
    sizes = {("apples", partition): 1_000_000 if partition == 7 else 1_000 for partition in range(2_000)}
    lanes = planning.lanes(sizes, 16)
    assert set(lanes) == set(sizes)
    loads: dict[int, int] = dict.fromkeys(range(16), 0)
    for place, lane in lanes.items():
        loads[lane] += sizes[place]
    large = lanes["apples", 7]
    assert [place for place, lane in lanes.items() if lane == large] == [("apples", 7)]
    others = [load for lane, load in loads.items() if lane != large]
    assert max(others) - min(others) <= 1_000


def test_empty_partitions_are_spread_too() -> None:
    lanes = planning.lanes({("apples", partition): 0 for partition in range(100)}, 10)
    assert all(list(lanes.values()).count(lane) == 10 for lane in range(10))


def test_a_rate_is_shared_by_what_is_left_so_that_all_together_keep_it() -> None:
    shares = planning.shares(1_000.0, {0: 300, 1: 100})
    assert shares == {0: 750.0, 1: 250.0}
    assert planning.shares(0.0, {0: 300}) == {0: 0.0}
