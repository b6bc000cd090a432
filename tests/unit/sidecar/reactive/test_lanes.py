"""Lanes of one partition: what goes out when, and how far the group may be told."""

from services.sidecar.reactive.lanes import BatchLimits, Lane, PartitionLanes, held_by
from services.sidecar.records import Partition, RawRecord

APPLES = Partition("apples", 0)
LIMITS = BatchLimits(max_records=3, max_bytes=100, linger_seconds=0.01)


def record(offset: int, key: bytes | None = None, value: bytes | None = b"x") -> RawRecord:
    return RawRecord("apples", 0, offset, 1_700_000_000_000, key, value, [])


def offsets(records: list[RawRecord]) -> list[int]:
    return [one.offset for one in records]


def filled(count: int, lanes: int = 1) -> PartitionLanes:
    """With records of ten keys."""
    made = PartitionLanes(APPLES, lanes)
    for offset in range(count):
        made.add(record(offset, b"key-%d" % (offset % 10)), 0.0)
    return made


def taken(lane: Lane) -> list[RawRecord]:
    return lane.take(LIMITS)


def test_a_partition_goes_out_in_its_order_in_batches_of_so_many_records() -> None:
    (lane,) = filled(5).lanes
    assert [offsets(taken(lane)), offsets(taken(lane)), taken(lane)] == [[0, 1, 2], [3, 4], []]


def test_a_batch_ends_before_the_record_that_would_be_too_much() -> None:
    lane = Lane()
    for offset in range(3):
        lane.add(record(offset, value=b"x" * 60), 0.0)
    assert [offsets(taken(lane)) for _ in range(3)] == [[0], [1], [2]]


def test_a_record_larger_than_a_batch_goes_alone() -> None:
    lane = Lane()
    for offset, size in enumerate((1, 500, 1)):
        lane.add(record(offset, value=b"x" * size), 0.0)
    assert [offsets(taken(lane)) for _ in range(3)] == [[0], [1], [2]]


def test_a_batch_lingers_until_it_is_full_or_its_first_record_has_waited() -> None:
    lane = Lane()
    lane.add(record(0), now=1.0)
    lane.add(record(1), now=1.004)
    assert round(lane.lingers(1.004, LIMITS), 3) == 0.006
    assert lane.lingers(1.01, LIMITS) == 0
    lane.add(record(2), now=1.005)
    assert lane.lingers(1.005, LIMITS) == 0


def test_bytes_alone_fill_a_batch() -> None:
    lane = Lane()
    lane.add(record(0, value=b"x" * 100), now=1.0)
    assert lane.lingers(1.0, LIMITS) == 0


def test_the_group_is_told_what_is_settled_without_a_gap() -> None:
    lanes = filled(6)
    batch = [record(offset) for offset in range(6)]
    told = []
    for some in (batch[2:4], batch[0:2], batch[4:]):
        lanes.settle(some)
        told.append(lanes.next_offset)
    assert told == [None, 4, 6]


def test_what_is_settled_ahead_of_an_open_record_is_held_until_that_one_is_settled() -> None:
    """So a lane that stands still bounds how far the others get, and with it what comes again after a kill."""
    lanes = PartitionLanes(APPLES, 4)
    records = [record(offset, b"key-%d" % offset) for offset in range(6)]
    for one in records:
        lanes.add(one, 0.0)
    assert lanes.settle(records[2:4]) == (0, 0)
    assert lanes.settle(records[0:2]) == held_by(records[:4])
    assert lanes.settle(records[4:]) == held_by(records[4:])


def test_offsets_that_a_partition_does_not_have_are_no_gap() -> None:
    lanes = PartitionLanes(APPLES)
    few = [record(offset) for offset in (3, 8, 20)]  # compacted, or markers of transactions
    for one in few:
        lanes.add(one, 0.0)
    lanes.settle(few[:2])
    assert lanes.next_offset == 9
    lanes.settle(few[2:])
    assert lanes.next_offset == 21


def test_records_of_a_key_share_a_lane_and_keep_their_order() -> None:
    lanes = filled(100, lanes=4)
    found: dict[bytes | None, list[tuple[int, int]]] = {}
    for place, lane in enumerate(lanes.lanes):
        for one in lane.clear():
            found.setdefault(one.key, []).append((place, one.offset))
    assert len({place for of_key in found.values() for place, _ in of_key}) > 1
    for of_key in found.values():
        assert len({place for place, _ in of_key}) == 1
        assert [offset for _, offset in of_key] == sorted(offset for _, offset in of_key)


def test_records_without_a_key_are_in_any_lane() -> None:
    lanes = PartitionLanes(APPLES, 4)
    for offset in range(8):
        lanes.add(record(offset), 0.0)
    assert [len(lane) for lane in lanes.lanes] == [2, 2, 2, 2]


def test_lanes_change_when_no_batch_is_out_and_nothing_is_lost_or_mixed_up() -> None:
    lanes = filled(6)
    (lane,) = lanes.lanes
    first = taken(lane)
    lane.is_out = True
    lanes.spread(4)
    assert not lanes.respread(now=1.0)
    lane.is_out = False
    assert lanes.respread(now=1.0)
    assert len(lanes.lanes) == 4
    lanes.spread(1)
    assert lanes.respread(now=1.0)
    assert offsets(lanes.drop_waiting()) == [3, 4, 5]
    lanes.settle(first)
    assert lanes.next_offset == 3


def test_what_is_held_is_counted_in_records_and_bytes() -> None:
    assert held_by([record(0, b"key", b"value"), record(1, None, None)]) == (2, 8)
