"""What was counted in an interval: sums, latencies that can be merged, and bounds that only cost names."""

from array import array
from datetime import UTC, datetime, timedelta

import datasketches
import pytest

from mesh.traffic.counting import FOLDED_VALUES, MOST_NAME_CHARACTERS, OVERFLOW, Combination, Counts, bounded
from mesh.traffic.reports import REPORT_BYTES, reports
from mesh.traffic.sketches import LatencySketch

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEN_SECONDS_LATER = NOON + timedelta(seconds=10)
SHOP_WRITES = Combination("shop", "User:ann", "orders", "rules/orders", "c1", "Produce")
SHOP_READS = SHOP_WRITES._replace(api="Fetch")


def counts(most: int = 100) -> Counts:
    return Counts(LatencySketch, NOON, most)


def test_what_is_of_one_combination_adds_up() -> None:
    counted = counts()
    counted.count(SHOP_WRITES, 1.5, records=3, size=300)
    counted.count(SHOP_WRITES, 2.5, records=1, size=100)
    counted.count(SHOP_WRITES, 9.0, errors=1)
    counted.count(SHOP_READS, 500.0, records=4, size=400)

    taken = counted.take(TEN_SECONDS_LATER).tallies
    writes = taken[SHOP_WRITES]
    assert (writes.records, writes.bytes, writes.calls, writes.errors) == (4, 400, 3, 1)
    assert taken[SHOP_READS].records == 4
    assert len(taken) == 2


def test_a_plain_tuple_is_as_good_as_a_combination() -> None:
    counted = counts()
    counted.count(("shop", "User:ann", "orders", "rules/orders", "c1", "Produce"), records=1)
    counted.count(SHOP_WRITES, records=2)
    assert counted.take(TEN_SECONDS_LATER).tallies[SHOP_WRITES].records == 3


def test_an_interval_begins_where_the_last_one_ended_and_with_nothing() -> None:
    counted = counts()
    counted.count(SHOP_WRITES, records=1)
    first = counted.take(TEN_SECONDS_LATER)
    second = counted.take(TEN_SECONDS_LATER + timedelta(seconds=10))
    assert (first.start, first.end) == (NOON, TEN_SECONDS_LATER)
    assert second.start == TEN_SECONDS_LATER
    assert not second.tallies
    counted.count(SHOP_WRITES, records=5)
    assert first.tallies[SHOP_WRITES].records == 1


def test_a_clock_that_is_put_back_makes_no_interval_negative() -> None:
    counted = counts()
    hour_ago = NOON - timedelta(hours=1)
    taken = counted.take(hour_ago)
    assert (taken.start, taken.end) == (hour_ago, hour_ago)
    assert counted.take(hour_ago + timedelta(seconds=10)).start == hour_ago


def test_combinations_beyond_the_bound_are_counted_together_and_lose_their_names_alone() -> None:
    counted = counts(most=2)
    for client in ("a", "b", "c", "d", "a", "c"):
        counted.count(SHOP_WRITES._replace(client=client), 1.0, records=10)

    taken = counted.take(TEN_SECONDS_LATER)
    assert {who.client for who in taken.tallies} == {"a", "b", ""}
    assert taken.tallies[OVERFLOW].records == 30
    assert taken.overflowed == 3
    assert sum(tally.records for tally in taken.tallies.values()) == 60


def test_names_that_others_chose_are_kept_to_a_length() -> None:
    assert bounded("shop") == "shop"
    assert len(bounded("x" * 32_000)) == MOST_NAME_CHARACTERS


@pytest.mark.parametrize("calls", [1, 10, FOLDED_VALUES, 3 * FOLDED_VALUES + 7])
def test_latencies_are_a_sketch_whose_quantiles_are_right(calls: int) -> None:
    counted = counts()
    for number in range(calls):
        counted.count(SHOP_WRITES, float(number))

    tally = counted.take(TEN_SECONDS_LATER).tallies[SHOP_WRITES]
    sketch = datasketches.kll_floats_sketch.deserialize(tally.latencies())
    assert sketch.n == calls
    assert sketch.get_max_value() == calls - 1
    assert sketch.get_quantile(0.5) == pytest.approx(calls / 2, abs=1 + calls * 0.02)


def test_latencies_wait_in_a_bounded_place_for_their_sketch() -> None:
    folded: list[int] = []

    class Sketch:
        def fold(self, milliseconds: "array[float]") -> None:
            folded.append(len(milliseconds))

        def written(self) -> bytes:
            return b"sketch"

    counted = Counts(Sketch, NOON)
    for _ in range(2 * FOLDED_VALUES + 1):
        counted.count(SHOP_WRITES, 1.0)
    assert folded == [FOLDED_VALUES, FOLDED_VALUES]
    assert counted.take(TEN_SECONDS_LATER).tallies[SHOP_WRITES].latencies() == b"sketch"
    assert sum(folded) == 2 * FOLDED_VALUES + 1


def test_calls_whose_time_nobody_knows_have_no_sketch() -> None:
    counted = counts()
    counted.count(SHOP_WRITES, records=1)
    (report,) = reports(counted.take(TEN_SECONDS_LATER), "gateway-1", "gateway")
    assert report.counters[0].latency_sketch == b""


def test_a_report_says_who_reports_and_when_it_was() -> None:
    counted = counts()
    counted.count(SHOP_WRITES, 1.5, records=3, size=300, errors=1)
    (report,) = reports(counted.take(TEN_SECONDS_LATER), "gateway-1", "gateway")

    assert (report.reporter, report.reporter_kind) == ("gateway-1", "gateway")
    assert report.start_time.ToDatetime(UTC) == NOON
    assert report.end_time.ToDatetime(UTC) == TEN_SECONDS_LATER
    (counter,) = report.counters
    assert (counter.client, counter.principal, counter.topic) == ("shop", "User:ann", "orders")
    assert (counter.rule, counter.cluster, counter.api) == ("rules/orders", "c1", "Produce")
    assert (counter.records, counter.bytes, counter.calls, counter.errors) == (3, 300, 1, 1)


def test_an_interval_that_is_too_large_for_one_record_comes_in_several_reports() -> None:
    counted = Counts(LatencySketch, NOON)
    for number in range(5_500):
        who = SHOP_WRITES._replace(client=f"{number:0256}")
        counted.count(who, 1.0, records=1)

    made = list(reports(counted.take(TEN_SECONDS_LATER), "gateway-1", "gateway"))
    assert len(made) > 1
    assert max(report.ByteSize() for report in made) <= REPORT_BYTES
    assert sum(counter.records for report in made for counter in report.counters) == 5_500
    assert [report.overflowed for report in made] == [500] + [0] * (len(made) - 1)
    assert len({report.id for report in made}) == len(made)


def test_an_interval_without_traffic_makes_no_report() -> None:
    assert list(reports(counts().take(TEN_SECONDS_LATER), "gateway-1", "gateway")) == []
