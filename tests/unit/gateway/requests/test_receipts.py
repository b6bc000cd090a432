"""Receipts of clients: whose they are, which offsets a Fetch has brought, and what is not certain."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mesh.traffic.counting import Counts
from mesh.traffic.receipts import Range, Reading
from mesh.traffic.sketches import LatencySketch
from services.gateway.requests.memory import Memory, Session
from services.gateway.requests.records import fetch
from services.gateway.requests.topic_patterns import TopicPatterns
from services.gateway.requests.traffic.calls import named_group
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.requests.traffic.receipts import ClientReceipts, Groups
from services.gateway.wire import batches
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.passing_records import PassingRecords
from tests.unit.gateway.requests.playbook import Playbook, World
from tests.unit.gateway.requests.records import fetching
from tests.unit.gateway.wire.records import batch

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
READER = ("User:alice", "shop-1", "10.0.0.1")


class Told:
    """A gateway that keeps receipts of apples."""

    def __init__(self) -> None:
        counts = Counts(LatencySketch, NOON)
        receipts = ClientReceipts(counts.receipts, TopicPatterns(["app*"]), TopicPatterns([]))
        self.receipts = counts.receipts
        session = Session("10.0.0.1:5", client_id="shop-1", address="10.0.0.1", principal="User:alice")
        memory = Memory(traffic=ClientTraffic(counts, lambda: 0.0, receipts))
        self.world = World({"c1": ["apples", "bananas"]}, partitions=2, memory=memory, session=session)

    def fetch(self, *topics: str) -> Playbook:
        return Playbook(fetch.handle, fetching.request(*topics), 12, self.world.view(), "shop-1")

    @property
    def ranges(self) -> dict[Reading, list[Range]]:
        return {reading: sent.ranges() for reading, sent in self.receipts.take().items()}


def test_a_fetch_has_the_offsets_of_the_batches_that_it_has_brought() -> None:
    told = Told()
    named_group(told.world.view(), "shop")
    records = bytes(batch(base_offset=40, count=3)) + bytes(batch(base_offset=50, count=2))
    told.fetch("apples", "bananas").answered(
        fetching.raw(fetching.data("apples", records), fetching.data("bananas", records))
    )
    ((reading, ranges),) = told.ranges.items()
    assert reading[:6] == ("User:alice", "shop-1", "shop", "apples", 0, "c1")
    assert reading.topic_id == told.world.view().clusters["c1"].topics["apples"].topic_id
    assert ranges == [(40, 52)]


def test_an_error_is_no_receipt() -> None:
    told = Told()
    told.fetch("apples").answered(fetching.raw(fetching.data("apples", error=ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert told.ranges == {}


def test_the_group_of_a_reader_is_the_only_one_that_its_connections_have_named() -> None:
    groups = Groups()
    assert groups.of(READER) == ""
    groups.note(READER, "shop", 1)
    groups.note(READER, "shop", 1)
    assert groups.of(READER) == "shop"
    groups.note(READER, "other", 2)
    assert groups.of(READER) == "", "two such clients: nobody knows whose Fetch it is"
    groups.left(READER, 1)
    assert groups.of(READER) == "other"
    groups.left(READER, 2)
    groups.note(READER, "third", 3)
    assert groups.of(READER) == "third"
    groups.left(READER, 3)
    assert groups.of(READER) == "third", "it may have lost its connection to the coordinator alone"
    assert groups.of(("User:bob", "shop-1", "10.0.0.1")) == ""


def test_a_span_ends_with_the_last_whole_batch() -> None:
    whole = bytes(batch(base_offset=7, count=3)) + bytes(batch(base_offset=12, count=1))
    cut = whole + bytes(batch(base_offset=13, count=9))[:-1]
    assert batches.span_of(cut, 0, len(cut)) == batches.Span(4, 7, 13, True)
    assert batches.span_of(b"", 0, 0) == batches.NO_BATCHES


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_batches_that_pass_in_pieces_have_the_same_span(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"".join(bytes(batch(base_offset=first, count=2)) for first in range(10, 30, 2))
    passing = PassingRecords(len(whole))
    for start in range(0, len(whole), size):
        passing.come(memoryview(whole)[start : start + size])
    assert passing.span == batches.span_of(whole, 0, len(whole)) == batches.Span(20, 10, 30, True)


def test_of_many_tiny_batches_the_last_ones_are_uncertain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_COUNTED", 3)
    monkeypatch.setattr("services.gateway.wire.passing_records.MOST_COUNTED", 3)
    whole = b"".join(bytes(batch(base_offset=first)) for first in range(4))
    passing = PassingRecords(len(whole))
    passing.come(memoryview(whole))
    expected = batches.Span(4, 0, 3, False)
    assert (batches.span_of(whole, 0, len(whole)), passing.span) == (expected, expected)
    told = Told()
    told.fetch("apples").answered(fetching.raw(fetching.data("apples", whole)))
    (sent,) = told.receipts.take().values()
    assert sent.ranges() == [(0, 3)]
