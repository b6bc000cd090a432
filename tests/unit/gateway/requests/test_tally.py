"""The gateway's tallies count as those of any service, and an interval that ends loses nothing and keeps nothing."""

from array import array
from datetime import UTC, datetime

import datasketches
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.traffic.counting import FOLDED_VALUES, OVERFLOW, Counts
from mesh.traffic.sketches import LatencySketch
from services.gateway.requests.traffic.clients import ClientTraffic
from services.gateway.requests.traffic.tally import Tally

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
KEYS = [("shop", "User:ann", topic, "rules/all", "c1", "Produce") for topic in ("apples", "bananas", "cherries")]


def traffic(most: int = 100) -> ClientTraffic:
    return ClientTraffic(Counts(LatencySketch, NOON, most), lambda: 0.0)


@pytest.mark.parametrize("calls", [1, FOLDED_VALUES - 1, FOLDED_VALUES, 3 * FOLDED_VALUES + 7])
def test_latencies_are_a_sketch_whose_quantiles_are_right(calls: int) -> None:
    tally = Tally(LatencySketch)
    for number in range(calls):
        tally.add(1, 100, 0)
        tally.took(float(number))

    sketch = datasketches.kll_floats_sketch.deserialize(tally.latencies())
    assert (tally.calls, tally.records, tally.bytes, tally.errors) == (calls, calls, 100 * calls, 0)
    assert sketch.n == calls
    assert (sketch.get_min_value(), sketch.get_max_value()) == (0, calls - 1)
    assert sketch.get_quantile(0.5) == pytest.approx(calls / 2, abs=1 + calls * 0.02)


def test_latencies_wait_in_a_bounded_place_for_their_sketch() -> None:
    folded: list[int] = []

    class Sketch:
        def fold(self, milliseconds: "array[float]") -> None:
            folded.append(len(milliseconds))

        def written(self) -> bytes:
            return b"sketch"

    tally = Tally(Sketch)
    for _ in range(2 * FOLDED_VALUES + 1):
        tally.took(1.0)
    assert folded == [FOLDED_VALUES, FOLDED_VALUES]
    assert tally.latencies() == b"sketch"
    assert sum(folded) == 2 * FOLDED_VALUES + 1


def test_a_call_whose_time_nobody_knows_has_no_sketch() -> None:
    tally = Tally(LatencySketch)
    tally.add(1, 100, 1)
    assert tally.latencies() == b""


@given(st.lists(st.sampled_from((*range(len(KEYS)), "take", "forget")), max_size=60))
def test_each_call_is_in_one_interval_whoever_keeps_its_tally(steps: list[int | str]) -> None:
    """Routes keep tallies, and end (`forget`) at any time. Plans count by the key."""
    counted, kept, taken = traffic(most=2), dict[int, Tally](), list[int]()
    for number, step in enumerate(steps):
        if step == "take":
            taken.append(sum(tally.records for tally in counted.counts.take(NOON).tallies.values()))
        elif step == "forget":
            kept.clear()
        elif number % 3 == 0:
            counted.counts.count(KEYS[int(step)], 1.0, records=1 << number % 50)
        else:
            tally = kept.get(int(step))
            if tally is None or tally.ended:
                tally = kept[int(step)] = counted.of(KEYS[int(step)])
            tally.add(1 << number % 50, 0, 0)
    taken.append(sum(tally.records for tally in counted.counts.take(NOON).tallies.values()))

    intervals: list[int] = [0]
    for number, step in enumerate(steps):
        if step == "take":
            intervals.append(0)
        elif step != "forget":
            intervals[-1] += 1 << number % 50
    assert taken == intervals


def test_calls_without_room_for_their_combination_are_counted_together() -> None:
    counted = traffic(most=1)
    for key in KEYS:
        tally = counted.of(key)
        tally.add(1, 10, 0)
        tally.add(1, 10, 0)
    interval = counted.counts.take(NOON)
    assert interval.overflowed == 4
    assert interval.tallies[OVERFLOW].records == 4
    assert counted.of(KEYS[1]).records == 0, "the next interval has room again"
