"""Which partitions rest for what is held of them."""

from services.sidecar.reactive.partition_shares import PartitionShares
from services.sidecar.records import Partition

SLOW, QUICK = Partition("apples", 0), Partition("apples", 1)


def shares(max_records: int = 100, max_bytes: int = 1000) -> PartitionShares:
    made = PartitionShares(max_records, max_bytes)
    made.open([SLOW, QUICK])
    return made


def test_a_partition_rests_when_its_share_is_full_and_goes_on_when_half_of_it_is_free() -> None:
    shared = shares()
    assert not shared.took(SLOW, 49, 49)
    assert shared.took(SLOW, 1, 1)
    assert not shared.took(SLOW, 1, 1)  # it rests already
    assert shared.resting == {SLOW}
    assert not shared.freed(SLOW, 20, 20)
    assert shared.freed(SLOW, 7, 7)
    assert shared.resting == set()


def test_a_slow_partition_takes_nothing_of_another_ones_share() -> None:
    shared = shares()
    shared.took(SLOW, 50, 50)
    assert not shared.took(QUICK, 49, 49)


def test_bytes_count_as_records_do() -> None:
    shared = shares()
    assert shared.took(SLOW, 1, 500)
    assert not shared.freed(SLOW, 0, 200)
    assert shared.freed(SLOW, 1, 300)


def test_one_record_always_fits_however_small_a_share_is() -> None:
    shared = shares(max_records=1)
    assert shared.took(SLOW, 1, 1)
    assert shared.freed(SLOW, 1, 1)


def test_a_partition_that_went_has_no_share_and_comes_back_empty() -> None:
    shared = shares()
    shared.took(SLOW, 50, 50)
    shared.close([SLOW])
    assert (shared.records, shared.size) == (0, 0)
    assert not shared.freed(SLOW, 50, 50)
    assert not shared.took(QUICK, 50, 50)  # it has all of it now
    shared.open([SLOW])
    assert shared.records == 50
