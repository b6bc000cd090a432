"""`meshctl traffic`: what is asked for, and how figures, growth and freshness are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import Result

from mesh import durations
from mesh.rpc import traffic
from meshctl.traffic import cells, growth, size
from tests.unit.meshctl.scripted_control import ScriptedControl

Meshctl = Callable[..., Result]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FIGURES = traffic.TrafficFigures(
    records=12_345,
    bytes=1_234_567,
    calls=678,
    errors=2,
    p50=durations.of_ms(1.2345),
    p90=durations.of_ms(9.9),
    p99=durations.of_ms(123.4),
    max=durations.of_ms(4_567.8),
)


def fresh(**fields: str) -> traffic.TrafficFreshness:
    made = traffic.TrafficFreshness(**fields)  # type: ignore[arg-type]
    made.complete_until.FromDatetime(datetime.now(UTC) - timedelta(seconds=30))
    return made


def words(line: str) -> list[str]:
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_who_has_the_most_is_a_table_with_all_together_at_the_end(control: ScriptedControl, meshctl: Meshctl) -> None:
    who = traffic.TrafficFilter(client="billing")
    quiet = traffic.Talker(figures=traffic.TrafficFigures(bytes=7))
    control.answers["TopTalkers"] = traffic.TopTalkersResponse(
        talkers=[traffic.Talker(who=who, figures=FIGURES), quiet], total=FIGURES, freshness=fresh()
    )
    shown = meshctl("traffic", "top", "--by", "client,topic", "--measure", "records", "-n", "2", "--rule", "orders")
    assert (shown.exit_code, shown.stderr) == (0, "")
    figures = ["1.23 MB", "12,345", "678", "2", "1.23", "9.9", "123", "4,568"]
    header, first, second, last = map(words, shown.stdout.splitlines())
    assert header == ["CLIENT", "TOPIC", "BYTES", "RECORDS", "CALLS", "ERRORS", "P50 MS", "P90 MS", "P99 MS", "MAX MS"]
    assert first == ["billing", "-", *figures]
    assert second == ["-", "-", "7 B", "0", "0", "0", "-", "-", "-", "-"]
    assert last == ["all", *figures]
    (asked,) = control.requests("TopTalkers")
    assert asked == traffic.TopTalkersRequest(
        by=[traffic.TRAFFIC_DIMENSION_CLIENT, traffic.TRAFFIC_DIMENSION_TOPIC],
        measure=traffic.TRAFFIC_MEASURE_RECORDS,
        filter=traffic.TrafficFilter(rule="rules/orders"),
        limit=2,
    )


def test_traffic_over_time_ends_with_all_of_it_and_its_growth(control: ScriptedControl, meshctl: Meshctl) -> None:
    answer = traffic.QueryTrafficResponse(total=FIGURES, growth=0.256, freshness=fresh())
    answer.points.add(figures=FIGURES).start_time.FromDatetime(NOON)
    control.answers["QueryTraffic"] = answer
    shown = meshctl("traffic", "show", "--topic", "orders", "--since", "2026-11-22T00:00:00Z", "--step", "hour")
    assert shown.stdout.splitlines()[-1] == ("25.6% more bytes in the second half of this time than in the first.")
    assert words(shown.stdout.splitlines()[-2])[0] == "all"
    (asked,) = control.requests("QueryTraffic")
    assert (asked.filter.topic, asked.step.seconds, asked.HasField("end_time")) == ("orders", 3_600, False)
    assert asked.start_time.ToDatetime(UTC) == NOON.replace(hour=0)


def test_tables_that_are_not_as_they_should_be_are_told_of(control: ScriptedControl, meshctl: Meshctl) -> None:
    control.answers["QueryTraffic"] = traffic.QueryTrafficResponse(freshness=fresh(problem="no pipeline runs"))
    shown = meshctl("traffic", "show")
    assert shown.stdout == "Nothing was counted in that time.\n"
    assert shown.stderr.startswith("no pipeline runs; traffic until 20")
    behind = traffic.QueryTrafficResponse()
    behind.freshness.complete_until.FromDatetime(NOON - timedelta(days=300))
    control.answers["QueryTraffic"] = behind
    assert meshctl("traffic", "show").stderr.startswith("the pipeline is behind; traffic until 20")


def test_programs_get_the_answer_as_it_is(control: ScriptedControl, meshctl: Meshctl) -> None:
    talker = traffic.Talker(who=traffic.TrafficFilter(topic="orders"), figures=FIGURES)
    control.answers["TopTalkers"] = traffic.TopTalkersResponse(talkers=[talker], total=FIGURES, freshness=fresh())
    shown = json.loads(meshctl("traffic", "top", "-o", "json").stdout)
    assert shown["talkers"][0]["who"]["topic"] == "orders"
    assert shown["talkers"][0]["figures"]["bytes"] == "1234567"


def test_what_talkers_are_told_apart_by_is_named(meshctl: Meshctl) -> None:
    shown = meshctl("traffic", "top", "--by", "client,colour")
    assert shown.exit_code == 2
    assert "'colour' is none of client, principal, topic, rule, cluster, api, reporter" in shown.stderr


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (999_700, "1 MB"), (5.5e15, "5.5e+03 TB")]
)
def test_sizes_have_three_digits(count: float, said: str) -> None:
    assert size(count) == said


def test_fewer_and_as_many_are_said_as_such() -> None:
    assert growth(-0.1).startswith("10.0% fewer bytes")
    assert growth(0.0001).startswith("As many bytes")


def test_no_calls_have_no_latency() -> None:
    assert cells(traffic.TrafficFigures())[-4:] == ("-", "-", "-", "-")
