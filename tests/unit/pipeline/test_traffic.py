"""Which reports count, how far the tables are complete, and what is read of a record; no Spark, no I/O."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from unittest.mock import Mock

import pytest

pytest.importorskip("pyarrow", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")
pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed (make env PIPELINE=1)")

import pyarrow

from mesh.rpc import traffic
from services.pipeline.kafka.positions import Span
from services.pipeline.kafka.reader import Batch
from services.pipeline.traffic.job import Reading, fold_shares
from services.pipeline.traffic.pieces import by_kind, to_reports
from services.pipeline.traffic.progress import Keeping
from services.pipeline.traffic.reports import Read, read_report
from services.pipeline.traffic.rollup import Step
from services.pipeline.traffic.watermark import ARRIVAL, Extent, Report, sift, watermark
from tests.fixtures.traffic_tables import sketch

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TEN = timedelta(seconds=10)


def report(offset: int, name: str | None, *, partition: int = 0, start: datetime = NOW - TEN) -> Report:
    return Report((partition, offset), NOW, name, start, start + TEN, problem=None if name else "it is no report")


def test_a_report_counts_where_it_stands_first() -> None:
    sifted = sift([report(7, "a"), report(5, "a"), report(6, "b"), report(1, "b", partition=1)], (), None)
    assert [each.place for each in sifted.taken] == [(0, 5), (0, 6)]
    assert [each.place for each in sifted.repeated] == [(0, 7), (1, 1)]


def test_what_an_earlier_batch_took_does_not_count_again() -> None:
    sifted = sift([report(5, "a"), report(6, "b")], {"a"}, None)
    assert [each.id for each in sifted.taken] == ["b"]


def test_what_is_no_report_is_refused_with_the_reason() -> None:
    sifted = sift([report(1, None)], (), None)
    assert (sifted.refused, sifted.taken) == ({(0, 1): "it is no report"}, [])


def test_what_ends_behind_the_watermark_is_late_and_counts() -> None:
    sifted = sift([report(1, "a", start=NOW - 2 * TEN), report(2, "b")], (), NOW - TEN)
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
        Step.MINUTE: date(2026, 11, 15),
        Step.HOUR: date(2026, 8, 24),
        Step.DAY: date.min,
    }


def a_report(**fields: object) -> traffic.TrafficReport:
    made = traffic.TrafficReport(id=str(uuid.uuid4()), reporter="g1", **fields)  # type: ignore[arg-type]
    made.start_time.FromDatetime(NOW)
    made.end_time.FromDatetime(NOW + TEN)
    return made


def read(*values: bytes | None) -> list[Read]:
    return [read_report(value, (0, offset), NOW, NOW) for offset, value in enumerate(values)]


def problems(found: list[Read]) -> list[str | None]:
    assert all(not each.counters for each in found if each.report.problem)
    return [each.report.problem for each in found]


def test_a_report_is_read_with_its_counters() -> None:
    latencies = sketch([1.0, 2.0]) or b""
    counter = traffic.TrafficCounter(client="c", topic="t", records=3, bytes=4, calls=2, latency_sketch=latencies)
    made = a_report(counters=[counter, traffic.TrafficCounter(topic="u")], overflowed=9)
    (found,) = read(made.SerializeToString())
    name = made.id.replace("-", "")
    assert found.report == Report((0, 0), NOW, name, NOW, NOW + TEN, counters=2, overflowed=9)
    assert (found.reporter, found.counters) == (
        "g1", [("c", "", "t", "", "", "", 3, 4, 2, 0, latencies), ("", "", "u", "", "", "", 0, 0, 0, 0, b"")]
    )  # fmt: skip
    assert read(a_report().SerializeToString())[0].report.problem is None, "nothing has to be counted"


def test_what_is_no_report_has_a_problem_and_no_counters() -> None:
    without_time = traffic.TrafficReport(id=str(uuid.uuid4()))
    values = [b"\xff nonsense", None, b"", a_report().SerializeToString(), without_time.SerializeToString()]
    found = read(*values)
    assert problems(found) == [
        "it is no TrafficReport",
        "its id is no UUID: ''",
        "its id is no UUID: ''",
        None,
        f"report {without_time.id} has no interval",
    ]
    assert [each.report.place for each in found] == [(0, offset) for offset in range(5)]


@pytest.mark.parametrize("number", [-1, 2**63 - 1])
@pytest.mark.parametrize("name", ["records", "bytes", "calls", "errors"])
def test_numbers_that_have_no_room_in_a_sum_are_refused(name: str, number: int) -> None:
    counters = [traffic.TrafficCounter(topic="t"), traffic.TrafficCounter(**{name: number})]  # type: ignore[arg-type]
    broken, well = a_report(counters=counters), a_report(counters=counters[:1])
    overflown = a_report(overflowed=number)
    found = read(*(each.SerializeToString() for each in (broken, overflown, well)))
    assert problems(found) == [
        f"report {broken.id} has a number that can't be: {number} {name}",
        f"report {overflown.id} has a number that can't be: {number} overflowed",
        None,
    ]
    assert len(found[2].counters) == 1


def test_numbers_of_a_report_that_have_no_room_in_a_sum_together_are_refused() -> None:
    made = a_report(counters=[traffic.TrafficCounter(topic="t", records=2**50)] * 2)
    assert problems(read(made.SerializeToString())) == [f"report {made.id} has a number that can't be: {2**51} records"]


@pytest.mark.parametrize("time_ms", [253_402_300_800_000, 2**62])
def test_a_report_whose_record_has_a_time_that_no_calendar_has_counts(time_ms: int) -> None:
    span = Span("mesh.traffic", 0, 7, 8)
    message = Mock(value=a_report().SerializeToString)
    message.configure_mock(offset=lambda: 7, timestamp=lambda: (1, time_ms))
    source = Mock(batches=lambda _: iter([("c1", Batch("mesh.traffic", 0, [message], 8))]))
    reading = Reading(source, [[span]], dict.fromkeys(Step, date.min), date.min, frozenset(), NOW)
    (_, part), *_ = by_kind(fold_shares(reading, iter([pyarrow.RecordBatch.from_pydict({"id": [0]})])))
    ((report, is_folded),) = to_reports(part)
    assert (report.place, report.written, report.problem, is_folded) == ((0, 7), None, None, True)


@pytest.mark.parametrize("seconds", [253_402_300_800, 2**62])
def test_times_that_nobody_can_write_are_no_interval(seconds: int) -> None:
    made = a_report()
    made.end_time.seconds = seconds
    both, start, nanos = a_report(), a_report(), a_report()
    both.start_time.seconds = both.end_time.seconds = seconds
    start.start_time.seconds = seconds
    nanos.start_time.nanos = -1
    *found, last = read(*(each.SerializeToString() for each in (made, both, start, nanos)))
    assert problems(found) == [f"report {each.id} has no interval" for each in (made, both, start)]
    assert last.report.problem is None, "a little less than a second is as good as any"


def test_a_clock_may_be_ahead_of_ours_a_little_and_not_by_hours() -> None:
    little, hours = a_report(), a_report()
    for each, ahead in ((little, timedelta(minutes=59)), (hours, timedelta(hours=2))):
        each.start_time.FromDatetime(NOW + ahead)
        each.end_time.FromDatetime(NOW + ahead + TEN)
    found = read(little.SerializeToString(), hours.SerializeToString())
    ahead_until = (NOW + timedelta(hours=2)).isoformat()
    assert problems(found) == [None, f"report {hours.id} is from the future: {ahead_until}"]
