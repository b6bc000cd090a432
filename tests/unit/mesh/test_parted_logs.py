"""The records of a part, with the offsets that clients see."""

from __future__ import annotations

from mesh.topic_logs.batches import batches
from mesh.topic_logs.parts import shifted
from tests.unit.router.test_copying import batch


def offsets(records: bytes) -> list[tuple[int, int]]:
    return [(each.base_offset, each.next_offset) for each in batches(records)]


def test_batches_get_the_offsets_of_clients_and_keep_their_checksums() -> None:
    made = shifted(batch(5, 3) + batch(8, 1), 100, None)
    assert offsets(made) == [(105, 108), (108, 109)]
    for each in batches(made):
        each.check()


def test_batches_behind_the_end_of_a_part_are_no_records_of_the_log() -> None:
    assert offsets(shifted(batch(5, 3) + batch(8, 1) + batch(9, 4), -2, 6)) == [(3, 6)]


def test_a_batch_that_is_cut_short_is_left_out() -> None:
    assert offsets(shifted(batch(5, 3) + batch(8, 1)[:-1], 0, None)) == [(5, 8)]
