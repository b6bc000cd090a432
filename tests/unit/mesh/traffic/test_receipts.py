"""Receipts never claim an offset that was not sent, and never lose one, whatever the reader does."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mesh.traffic.counting import Counts
from mesh.traffic.receipts import OVERFLOW, Range, Reading, Receipts, Sent, packed, union, unpacked
from mesh.traffic.reports import reports
from mesh.traffic.sketches import LatencySketch

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ALICE = Reading("User:alice", "shop-1", "shop", "apples", 3, "c1", b"i" * 16)
RANGES = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 20)).map(lambda each: (each[0], sum(each))), max_size=40
)


def offsets(*ranges: Range) -> set[int]:
    return {offset for first, end in ranges for offset in range(first, end)}


@given(RANGES, st.integers(1, 8))
def test_what_is_told_was_sent_and_what_was_sent_is_told_or_in_the_wide_range(ranges: list[Range], most: int) -> None:
    sent = Sent(most)
    for each in ranges:
        sent.add(*each)
    told = sent.ranges()
    perhaps = offsets(sent.perhaps) if sent.perhaps else set()
    assert len(told) <= most
    assert offsets(*told) <= offsets(*ranges) <= offsets(*told) | perhaps
    assert all(end < first for (_, end), (first, _) in pairwise(told))


@given(RANGES)
def test_with_room_nothing_is_lost(ranges: list[Range]) -> None:
    sent = Sent(len(ranges) + 1)
    for each in ranges:
        sent.add(*each)
    assert (sent.ranges(), sent.perhaps) == (union(ranges), None)
    assert unpacked(packed(union(ranges))) == union(ranges)


def test_a_reader_that_reads_on_has_one_range() -> None:
    sent = Sent()
    for first in range(0, 10_000, 10):
        sent.add(first, first + 10)
    assert sent.ranges() == [(0, 10_000)]


def test_an_interval_ends_with_its_receipts_and_a_report_has_them() -> None:
    counts = Counts(LatencySketch, NOON)
    counts.receipts.of(ALICE).add(5, 9)
    counts.receipts.of(ALICE).add_perhaps(20, 30)
    (report,) = reports(counts.take(NOON), "gateway-1", "gateway")
    (told,) = report.sent
    assert (told.principal, told.client, told.group, told.topic, told.partition) == ALICE[:5]
    assert (told.cluster, told.topic_id) == ALICE[5:]
    assert (unpacked(told.ranges), list(told.perhaps), told.exact) == ([(5, 9)], [20, 30], False)
    assert list(reports(counts.take(NOON), "gateway-1", "gateway")) == []


def test_readers_without_room_are_told_to_be_there_and_no_more() -> None:
    receipts = Receipts(most=1)
    receipts.of(ALICE).add(5, 9)
    receipts.of(ALICE._replace(client="shop-2")).add(7, 8)
    receipts.of(ALICE).add(9, 10)
    taken = receipts.take()
    assert set(taken) == {ALICE, OVERFLOW}
    assert taken[ALICE].ranges() == [(5, 10)]
