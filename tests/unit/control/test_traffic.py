"""Which tables answer a question about traffic, and what may not be asked."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from mesh.routing import Place
from mesh.rpc import traffic
from services.control.domain.dry_runs.traffic import TopicTraffic, of_traffic
from services.control.domain.errors import InvalidField
from services.control.domain.rules.moves import Move
from services.control.domain.traffic.queries import (
    HOW_TO_START,
    LAST_HOUR,
    Range,
    Step,
    Told,
    columns_of,
    freshness,
    growth,
    limit_of,
    measure_of,
    pieces,
    range_of,
    step_of,
)

NOW = datetime(2026, 11, 22, 12, 34, 56, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-{text}").replace(tzinfo=UTC)


def cut(start: str, end: str, **kept: date) -> list[tuple[str, str, str]]:
    found = pieces(at(start), at(end), {Step[name.upper()]: day for name, day in kept.items()})
    return [(each.step.name, f"{each.start:%m-%dT%H:%M}", f"{each.end:%m-%dT%H:%M}") for each in found]


def test_an_hour_is_read_by_the_minute_from_the_minute_that_it_begins_in() -> None:
    assert cut("11-22T11:34:56", "11-22T12:34:56") == [("MINUTE", "11-22T11:34", "11-22T12:35")]


def test_hours_are_read_by_the_hour_but_for_their_ends() -> None:
    assert cut("11-22T08:50", "11-22T12:10") == [
        ("MINUTE", "11-22T08:50", "11-22T09:00"),
        ("HOUR", "11-22T09:00", "11-22T12:00"),
        ("MINUTE", "11-22T12:00", "11-22T12:10"),
    ]


def test_days_are_read_by_the_day_but_for_their_ends() -> None:
    assert cut("11-19T22:50", "11-22T01:10") == [
        ("MINUTE", "11-19T22:50", "11-19T23:00"),
        ("HOUR", "11-19T23:00", "11-20T00:00"),
        ("DAY", "11-20T00:00", "11-22T00:00"),
        ("HOUR", "11-22T00:00", "11-22T01:00"),
        ("MINUTE", "11-22T01:00", "11-22T01:10"),
    ]


def test_whole_steps_need_no_finer_ones() -> None:
    assert cut("11-20T00:00", "11-22T00:00") == [("DAY", "11-20T00:00", "11-22T00:00")]
    assert cut("11-20T05:00", "11-20T07:00") == [("HOUR", "11-20T05:00", "11-20T07:00")]


def test_where_minutes_are_gone_the_whole_hour_stands_for_them() -> None:
    assert cut("11-10T08:50", "11-22T12:10", minute=date(2026, 11, 15)) == [
        ("HOUR", "11-10T08:00", "11-11T00:00"),
        ("DAY", "11-11T00:00", "11-22T00:00"),
        ("HOUR", "11-22T00:00", "11-22T12:00"),
        ("MINUTE", "11-22T12:00", "11-22T12:10"),
    ]
    assert cut("11-10T08:50", "11-10T09:10", minute=date(2026, 11, 15)) == [("HOUR", "11-10T08:00", "11-10T10:00")]


def test_where_hours_are_gone_too_the_whole_day_stands_for_them() -> None:
    kept = {"minute": date(2026, 11, 15), "hour": date(2026, 10, 1)}
    assert cut("05-10T08:50", "05-10T09:10", **kept) == [("DAY", "05-10T00:00", "05-11T00:00")]


@pytest.mark.parametrize(
    ("length", "step"),
    [
        (timedelta(minutes=200), Step.MINUTE),
        (timedelta(minutes=201), Step.HOUR),
        (timedelta(hours=200), Step.HOUR),
        (timedelta(hours=201), Step.DAY),
        (timedelta(days=4_000), Step.DAY),
    ],
)
def test_without_a_step_there_are_200_points_at_most_as_long_as_days_allow(length: timedelta, step: Step) -> None:
    assert step_of(traffic.QueryTrafficRequest(), Range({}, NOW - length, NOW), {}) is step


def test_without_a_step_one_is_taken_that_is_still_kept() -> None:
    old = Range({}, at("11-01T00:00"), at("11-01T01:00"))
    assert step_of(traffic.QueryTrafficRequest(), old, {Step.MINUTE: date(2026, 11, 15)}) is Step.HOUR


def test_a_step_is_a_minute_an_hour_or_a_day_and_gives_a_bounded_number_of_points() -> None:
    request = traffic.QueryTrafficRequest()
    request.step.FromTimedelta(timedelta(seconds=90))
    with pytest.raises(InvalidField, match="90 s is none of a minute, an hour, a day"):
        step_of(request, Range({}, NOW - LAST_HOUR, NOW), {})
    request.step.FromTimedelta(timedelta(minutes=1))
    assert step_of(request, Range({}, NOW - timedelta(days=3), NOW), {}) is Step.MINUTE
    with pytest.raises(InvalidField, match="10080 points are more than 5000"):
        step_of(request, Range({}, NOW - timedelta(days=7), NOW), {})


def test_times_have_an_order_and_a_default() -> None:
    request = traffic.TopTalkersRequest(filter=traffic.TrafficFilter(topic="orders"))
    assert range_of(request.filter, request, NOW, LAST_HOUR) == Range({"topic": "orders"}, NOW - LAST_HOUR, NOW)
    request.start_time.FromDatetime(NOW)
    with pytest.raises(InvalidField, match="is not after start_time"):
        range_of(request.filter, request, NOW, LAST_HOUR)


def test_talkers_are_told_apart_by_dimensions_each_once() -> None:
    assert columns_of([traffic.TRAFFIC_DIMENSION_CLIENT, traffic.TRAFFIC_DIMENSION_TOPIC]) == ["client", "topic"]
    with pytest.raises(InvalidField, match="by: names no dimension; possible are client, principal, topic"):
        columns_of([])
    with pytest.raises(InvalidField, match=r"by\[1\]: topic is named twice"):
        columns_of([traffic.TRAFFIC_DIMENSION_TOPIC] * 2)
    with pytest.raises(InvalidField, match=r"by\[0\]: 0 is no dimension"):
        columns_of([traffic.TRAFFIC_DIMENSION_UNSPECIFIED])


def test_measures_and_limits_have_defaults_and_bounds() -> None:
    assert measure_of(traffic.TRAFFIC_MEASURE_UNSPECIFIED) == "bytes"
    assert measure_of(traffic.TRAFFIC_MEASURE_ERRORS) == "errors"
    assert (limit_of(0), limit_of(7), limit_of(5_000)) == (10, 7, 1_000)
    with pytest.raises(InvalidField, match="-1 is negative"):
        limit_of(-1)


def test_growth_is_from_the_first_half_to_the_second() -> None:
    start, end = NOW - timedelta(hours=4), NOW
    points = [(start, 100), (start + timedelta(hours=1), 100), (start + timedelta(hours=2), 300)]
    assert growth(points, start, end) == pytest.approx(0.5)
    assert growth(points[2:], start, end) is None


def test_tables_that_nobody_fills_say_so() -> None:
    assert freshness(None, NOW).problem == f"no pipeline has ever counted traffic here: {HOW_TO_START}"
    complete = NOW - timedelta(minutes=1)
    assert freshness(Told(complete, NOW - timedelta(seconds=20)), NOW).problem == ""
    silent = freshness(Told(complete, NOW - timedelta(seconds=90)), NOW)
    assert silent.problem == f"no pipeline has been heard of for 90 s: {HOW_TO_START}"
    assert silent.complete_until.ToDatetime(UTC) == complete


def test_a_dry_run_tells_what_flows_through_topics_that_move() -> None:
    moves = [Move(topic, Place("c1", topic), Place("c2", topic), 3) for topic in ("orders", "quiet")]
    known = {"orders": TopicTraffic(1234.5, 2_345_678, 14, 12.34), "elsewhere": TopicTraffic(1, 1, 1, None)}
    (finding,) = of_traffic(moves, known)
    assert finding.text == (
        "topic 'orders' has had 1,234 records/s, 2.35 MB/s of 14 clients, p99 12.3 ms in the last 24 hours: "
        "its new place has to bear them"
    )
