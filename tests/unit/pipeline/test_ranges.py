"""Which offsets a range means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.pipeline.kafka.positions import RecordsLostError, Span, StreamError
from services.pipeline.kafka.ranges import EPOCH, Bound, PartitionBounds, Range, cut, milliseconds, shares, span_of

AT_5, AT_50, AT_500 = (EPOCH + timedelta(milliseconds=each) for each in (5, 50, 500))
LOG = PartitionBounds(start=10, stable_end=90, end=100, at={5: 10, 50: 60, 500: 100})
"""Offsets 90 and on belong to a transaction that is open."""


def bounds(start: Bound = None, end: Bound = None, *, accept_loss: bool = False) -> tuple[int, int]:
    span = span_of(Range("apples", start, end), "apples", 0, LOG, accept_loss=accept_loss)
    return span.start, span.end


def test_without_bounds_it_is_what_the_log_holds_and_is_committed() -> None:
    assert bounds() == (10, 90)


def test_bounds_are_offsets_or_times() -> None:
    assert bounds(20, 30) == (20, 30)
    assert bounds(AT_5, AT_50) == (10, 60)
    assert bounds(AT_50, 61) == (60, 61)


def test_an_end_that_was_told_is_meant_also_behind_an_open_transaction() -> None:
    assert bounds(end=95) == (10, 95)
    assert bounds(end=AT_500) == (10, 100)


def test_nothing_is_between_bounds_the_wrong_way_round() -> None:
    assert bounds(30, 20) == (30, 30)
    assert bounds(AT_500) == (100, 100)


def test_an_offset_that_retention_took_is_an_error_unless_loss_is_accepted() -> None:
    with pytest.raises(
        RecordsLostError, match="apples/0 begins at offset 10, 4 is asked for: retention took 6 offsets"
    ):
        bounds(4)
    assert bounds(4, accept_loss=True) == (10, 90)
    assert bounds(4, 8, accept_loss=True) == (10, 10)


def test_an_end_behind_the_log_is_an_error() -> None:
    with pytest.raises(StreamError, match="apples/0 ends at offset 100, it is to be read up to 101"):
        bounds(end=101)


def test_times_between_milliseconds_count_as_the_next_one() -> None:
    assert milliseconds(datetime(1970, 1, 1, 0, 0, 0, 1_001, tzinfo=UTC)) == 2
    assert milliseconds(datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC)) == 1


def test_large_spans_are_cut_so_that_each_core_has_work_and_small_ones_are_not() -> None:
    large, small = Span("apples", 0, 0, 90_000), Span("apples", 1, 5, 10_005)
    pieces = cut([large, small, Span("apples", 2, 7, 7)], 4)
    assert [(each.partition, each.start, each.end) for each in pieces] == [
        (0, 0, 22_500),
        (0, 22_500, 45_000),
        (0, 45_000, 67_500),
        (0, 67_500, 90_000),
        (1, 5, 10_005),
    ]
    assert cut([small], 100) == [small]
    assert cut([], 2) == []


def test_shares_have_about_as_many_offsets_each_and_partitions_in_order() -> None:
    partitions = [Span("apples", number, 10, 10 + size) for number, size in enumerate((4, 0, 4, 3))]
    assert shares(partitions, 2) == [
        [Span("apples", 0, 10, 14), Span("apples", 2, 10, 12)],
        [Span("apples", 2, 12, 14), Span("apples", 3, 10, 13)],
    ]
    assert shares(partitions, 1) == [[each for each in partitions if each.start < each.end]]
    assert shares(partitions[:1], 9) == [[Span("apples", 0, at, at + 1)] for at in range(10, 14)]
    assert shares([], 2) == []
