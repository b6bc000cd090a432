"""Which reports count, how far the tables are complete, and what a worker makes of bytes; no Spark, no I/O."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")
pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

import pyarrow

from mesh.rpc import traffic
from services.pipeline.traffic.ledger import Keeping
from services.pipeline.traffic.reports import REPORTS_AT_ONCE, read_reports
from services.pipeline.traffic.sifting import ARRIVAL, Extent, Report, sift, watermark
from tests.fixtures.traffic_tables import sketch

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEN = timedelta(seconds=10)


def report(offset: int, name: str | None, *, partition: int = 0, start: datetime = NOW - TEN) -> Report:
    return Report((partition, offset), NOW, name, start, start + TEN, problem=None if name else "it is no report")


def test_a_report_counts_where_it_stands_first() -> None:
    sifted = sift([report(7, "a"), report(5, "a"), report(6, "b"), report(1, "b", partition=1)], (), None, NOW)
    assert [each.place for each in sifted.taken] == [(0, 5), (0, 6)]
    assert [each.place for each in sifted.repeated] == [(0, 7), (1, 1)]


def test_what_an_earlier_batch_took_does_not_count_again() -> None:
    sifted = sift([report(5, "a"), report(6, "b")], {"a"}, None, NOW)
    assert [each.id for each in sifted.taken] == ["b"]


def test_what_is_no_report_or_from_the_future_is_refused_with_the_reason() -> None:
    ahead = NOW + timedelta(hours=2)
    sifted = sift([report(1, None), report(2, "a", start=ahead)], (), None, NOW)
    assert sifted.refused == {(0, 1): "it is no report", (0, 2): f"report a is from the future: {ahead.isoformat()}"}
    assert not sifted.taken


def test_a_clock_may_be_ahead_of_ours_a_little() -> None:
    assert sift([report(1, "a", start=NOW + timedelta(minutes=59))], (), None, NOW).taken


def test_what_ends_behind_the_watermark_is_late_and_counts() -> None:
    sifted = sift([report(1, "a", start=NOW - 2 * TEN), report(2, "b")], (), NOW - TEN, NOW)
    assert (len(sifted.taken), sifted.late) == (2, 1)


def test_when_all_is_read_the_tables_are_complete_but_for_what_is_on_its_way() -> None:
    assert watermark(None, [Extent(5, 5, None), Extent(0, 0, None)], NOW) == NOW - ARRIVAL


def test_a_partition_with_more_to_read_holds_the_watermark_back() -> None:
    hour_ago = NOW - timedelta(hours=1)
    assert watermark(None, [Extent(5, 5, None), Extent(90, 5, hour_ago)], NOW) == hour_ago - ARRIVAL
    assert watermark(NOW - TEN, [Extent(90, 5, hour_ago)], NOW) == NOW - TEN, "never back"
    assert watermark(hour_ago, [Extent(90, 0, None)], NOW) == hour_ago, "of which nothing was read"
    assert watermark(None, [], NOW) is None, "before there is a topic"


def test_a_clock_that_is_ahead_takes_the_watermark_nowhere_that_we_have_not_looked() -> None:
    assert watermark(None, [Extent(90, 5, NOW + timedelta(days=3))], NOW) == NOW - ARRIVAL


def test_steps_are_kept_for_days_and_0_is_for_ever() -> None:
    assert Keeping(minutes=7, hours=90, days=0).begins(date(2026, 11, 22)) == {
        "minute": date(2026, 11, 15),
        "hour": date(2026, 8, 24),
        "day": date.min,
    }


def a_report(**fields: object) -> traffic.TrafficReport:
    made = traffic.TrafficReport(id=str(uuid.uuid4()), reporter="g1", **fields)  # type: ignore[arg-type]
    made.start_time.FromDatetime(NOW)
    made.end_time.FromDatetime(NOW + TEN)
    return made


def rows(*values: bytes | None) -> list[dict[str, Any]]:
    records = pyarrow.RecordBatch.from_pydict(
        {
            "partition": pyarrow.array([0] * len(values), pyarrow.int32()),
            "offset": pyarrow.array(range(len(values)), pyarrow.int64()),
            "timestamp": pyarrow.array([NOW] * len(values), pyarrow.timestamp("us", tz="UTC")),
            "value": pyarrow.array(values, pyarrow.binary()),
        }
    )
    return [row for batch in read_reports([records]) for row in batch.to_pylist()]


def test_a_report_becomes_a_row_with_its_counters() -> None:
    latencies = sketch([1.0, 2.0]) or b""
    counter = traffic.TrafficCounter(client="c", topic="t", records=3, bytes=4, calls=2, latency_sketch=latencies)
    made = a_report(counters=[counter, traffic.TrafficCounter(topic="u")], overflowed=9)
    (row,) = rows(made.SerializeToString())
    assert (row["report"], row["problem"], row["overflowed"]) == (made.id.replace("-", ""), None, 9)
    assert (row["start"], row["end"], row["written"]) == (NOW, NOW + TEN, NOW)
    first, second = row["counters"]
    assert (first["client"], first["records"], first["calls"], first["latency"]) == ("c", 3, 2, latencies)
    assert (second["topic"], second["latency"]) == ("u", None)


def test_what_is_no_report_becomes_a_row_with_a_problem_and_no_counters() -> None:
    without_time = traffic.TrafficReport(id=str(uuid.uuid4()))
    values = [b"\xff nonsense", None, b"", a_report().SerializeToString(), without_time.SerializeToString()]
    found = rows(*values)
    assert [str(row["problem"]) for row in found] == [
        "it is no TrafficReport",
        "its id is no UUID: ''",
        "its id is no UUID: ''",
        "None",
        f"report {without_time.id} has no interval",
    ]
    assert [row["counters"] for row in found] == [[]] * 5
    assert [row["offset"] for row in found] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", [-1, 2**63 - 1])
@pytest.mark.parametrize("name", ["records", "bytes", "calls", "errors"])
def test_numbers_that_have_no_room_in_a_sum_are_refused(name: str, number: int) -> None:
    counters = [traffic.TrafficCounter(topic="t"), traffic.TrafficCounter(**{name: number})]  # type: ignore[arg-type]
    broken, well = a_report(counters=counters), a_report(counters=counters[:1])
    first, second = rows(broken.SerializeToString(), well.SerializeToString())
    assert (first["problem"], first["report"], first["counters"]) == (
        f"report {broken.id} has a number that can't be: {number} {name}", None, []
    )  # fmt: skip
    assert (second["problem"], len(second["counters"])) == (None, 1)


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**62])
def test_times_that_nobody_can_write_are_no_interval(seconds: int) -> None:
    made = a_report()
    made.end_time.seconds = seconds
    both, start, nanos = a_report(), a_report(), a_report()
    both.start_time.seconds = both.end_time.seconds = seconds
    start.start_time.seconds = seconds
    nanos.start_time.nanos = -1
    *found, last = rows(*(each.SerializeToString() for each in (made, both, start, nanos)))
    assert [row["problem"] for row in found] == [f"report {each.id} has no interval" for each in (made, both, start)]
    assert last["problem"] is None, "a little less than a second is as good as any"


def test_a_broken_sketch_becomes_none() -> None:
    counters = [traffic.TrafficCounter(calls=1, latency_sketch=broken) for broken in (b"\x00", b"\x05\x01\x0f broken")]
    (row,) = rows(a_report(counters=counters).SerializeToString())
    assert [each["latency"] for each in row["counters"]] == [None, None]


def test_many_reports_are_given_on_in_small_batches() -> None:
    value = a_report(counters=[traffic.TrafficCounter(topic="t")]).SerializeToString()
    found = rows(*[value] * (REPORTS_AT_ONCE + 1))
    assert [len(row["counters"]) for row in found] == [1] * (REPORTS_AT_ONCE + 1)
