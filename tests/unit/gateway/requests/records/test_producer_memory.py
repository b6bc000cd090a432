"""Batches of one producer are compared in the producer's order, also where its sequences begin again at 0."""

import pytest

from services.gateway.requests.records.producer_memory import BatchKey, Passages, Refusals
from services.gateway.wire.batches import SEQUENCES, comes_after

KEY: BatchKey = (1 << 62, 0, "apples", 0)
NOW = 1000.0
LAST = SEQUENCES - 5
"""A batch of ten records begins with this sequence: the next batch begins with 5."""


@pytest.mark.parametrize(("sequence", "other"), [(6, 5), (5, LAST), (0, SEQUENCES - 1), (SEQUENCES - 1, LAST)])
def test_a_sequence_comes_after_another_across_the_end_of_the_numbers(sequence: int, other: int) -> None:
    assert comes_after(sequence, other)
    assert not comes_after(other, sequence)
    assert not comes_after(sequence, sequence)


def test_a_batch_behind_the_end_of_the_numbers_waits_for_a_refused_one_before_it() -> None:
    refusals = Refusals()
    refusals.refuse(KEY, LAST, NOW)
    assert not refusals.admits(KEY, 5, 10, NOW)
    refusals.refuse(KEY, 5, NOW)
    assert refusals.admits(KEY, LAST, 10, NOW), "the first of them comes again"
    assert not refusals.admits(KEY, 15, 10, NOW), "the second one is still missing"
    assert refusals.admits(KEY, 5, 10, NOW)
    assert not refusals.any(NOW)


def test_refused_batches_stay_in_order_whichever_was_refused_first() -> None:
    refusals = Refusals()
    for sequence in (5, LAST, 15):
        refusals.refuse(KEY, sequence, NOW)
    assert not refusals.admits(KEY, 5, 10, NOW)
    assert refusals.admits(KEY, LAST, 20, NOW), "one batch with the records of two"
    assert refusals.admits(KEY, 15, 10, NOW)
    assert not refusals.any(NOW)


def test_a_batch_behind_the_end_of_the_numbers_overtakes_none_on_another_connection() -> None:
    passages = Passages()
    passages.enter(KEY, "first", LAST, "one connection")
    passages.enter(KEY, "second", 5, "another connection")
    assert passages.is_overtaking(KEY, 5, "another connection")
    assert not passages.is_overtaking(KEY, LAST, "one connection")
