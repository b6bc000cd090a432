"""The lag of a partition over time: its age, since when, and for how long; and which samples are stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from services.control.domain.log_ranges import LogRange
from services.control.domain.topics.lag import Course, Sample, step_s, steps
from services.control.domain.topics.lag_ages import MOST_POINTS, Ages
from services.control.domain.topics.lag_samples import LASTING, Seen, Series, Thinning, seen, within

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
TEN = timedelta(seconds=10)
ORDERS = Series("billing", "orders")


def course(*samples: tuple[float, int, int]) -> Course:
    return Course([Sample(*each) for each in samples])


def steady(seconds: int, written: int, passed: int, lag: int = 0) -> list[tuple[float, int, int]]:
    """A sample each ten seconds, with so many records between two."""
    return [(10.0 * n, 1000 + n * passed, 1000 + lag + n * written) for n in range(seconds // 10 + 1)]


def test_a_group_at_the_end_has_no_lag() -> None:
    last = course((0, 5, 5), (10, 9, 9)).last
    assert (last.records, last.seconds, last.at_least) == (0, 0.0, False)


def test_the_age_is_the_time_since_the_end_passed_the_position() -> None:
    """The end was 15 halfway between the samples at 10 s and 20 s."""
    last = course((0, 0, 10), (10, 5, 10), (20, 10, 20), (30, 15, 30)).last
    assert (last.records, last.seconds, last.at_least) == (15, 15.0, False)


def test_the_age_of_a_record_older_than_the_samples_is_a_bound() -> None:
    last = course((100, 3, 10), (140, 3, 10)).last
    assert (last.records, last.seconds, last.at_least) == (7, 40.0, True)


def test_points_between_samples_lie_on_a_line_and_points_in_a_gap_are_left_out() -> None:
    found = list(course((0, 0, 0), (10, 0, 100), (2_000, 500, 500)).at([-5, 0, 5, 10, 1_000, 2_000, 3_000]))
    assert [(each.time, each.records) for each in found] == [(0, 0), (5, 50), (10, 100), (2_000, 0)]


def test_a_topic_that_was_made_again_begins_anew() -> None:
    last = course((0, 900, 1_000), (10, 950, 1_000), (20, 0, 5), (30, 2, 5)).last
    assert (last.records, last.seconds, last.at_least) == (3, 10.0, True)


def test_a_lag_that_grows_has_a_start_also_if_it_sways() -> None:
    quiet = [(10.0 * n, 100 * n, 100 * n) for n in range(30)]
    slow = [(300 + 10.0 * n, 2_900 + 40 * n - 30 * (n % 2), 2_900 + 100 * n) for n in range(31)]
    found = course(*quiet, *slow).growing_since()
    assert found is not None
    assert (found.time, found.records) == (300.0, 0)
    assert not found.for_longer


def test_a_peak_of_long_ago_is_no_part_of_the_growth_now() -> None:
    before = [(0.0, 0, 0), (100.0, 0, 5_000), (200.0, 5_000, 5_000), (800.0, 5_000, 5_000)]
    now = [(800 + 10.0 * n, 5_000, 5_000 + 10 * n) for n in range(1, 20)]
    found = course(*before, *now).growing_since()
    assert found is not None
    assert found.time == 800.0


@pytest.mark.parametrize(
    "samples",
    [
        steady(300, written=50, passed=50, lag=7),
        steady(300, written=50, passed=90, lag=5_000),
        [(10.0 * n, 100 * n - 100 * (n % 2), 100 * n) for n in range(31)],
    ],
    ids=["as fast", "faster", "commits now and then"],
)
def test_a_lag_that_stays_or_shrinks_does_not_grow(samples: list[tuple[float, int, int]]) -> None:
    assert course(*samples).growing_since() is None


def test_above_a_threshold_since() -> None:
    grown = course((0, 0, 5), (10, 0, 20), (20, 15, 23), (30, 15, 27), (40, 15, 45))
    above = grown.above_since(10)
    assert above is not None
    assert (above.time, above.for_longer) == (30, False)
    always = grown.above_since(0)
    assert always is not None
    assert (always.time, always.for_longer) == (0, True)
    assert grown.above_since(30) is None


def test_the_time_to_catch_up_needs_a_group_that_is_faster_than_its_producers() -> None:
    faster = course(*steady(300, written=100, passed=200, lag=6_000))
    assert faster.rates().written == 10
    assert faster.rates().passed == 20
    assert faster.catch_up_s() == 300
    assert course(*steady(300, written=200, passed=100)).catch_up_s() is None
    assert course(*steady(300, written=200, passed=200)).catch_up_s() == 0


def test_rates_begin_behind_a_reset_of_the_position() -> None:
    rates = course((0, 0, 1_000), (10, 900, 1_000), (20, 100, 1_000), (30, 200, 1_000)).rates()
    assert rates.passed == 10


def test_steps_are_multiples_and_bounded() -> None:
    assert step_s(6 * 3_600) == 300
    assert step_s(600) == 10
    assert step_s(24 * 3_600) == 900
    assert step_s(30 * 86_400) == 86_400
    assert steps(95, 131, 10) == [100, 110, 120, 130]


def state(position: int, end: int) -> Seen:
    return Seen((0,), (position,), (end,))


def stored(thinning: Thinning, time: datetime, found: Seen | None) -> list[tuple[float, bool, int]]:
    rows = thinning.rows(time, {} if found is None else {ORDERS: found})
    return [((each.time - NOON).total_seconds(), each.lasts, each.seen.ends[0]) for each in rows]


def test_an_idle_series_has_a_row_in_five_minutes() -> None:
    thinning = Thinning()
    found = [row for n in range(61) for row in stored(thinning, NOON + n * TEN, state(1, 1))]
    assert found == [(0, True, 1), (300, True, 1), (600, True, 1)]
    assert 2 * LASTING == 60 * TEN


def test_a_change_stores_the_sample_before_it_too() -> None:
    thinning = Thinning()
    ends = [1, 1, 1, 5, 9, 9]
    found = [row for n, end in enumerate(ends) for row in stored(thinning, NOON + n * TEN, state(1, end))]
    assert found == [(0, True, 1), (20, False, 1), (30, False, 5), (40, False, 9)]
    assert stored(thinning, NOON + 6 * TEN, None) == [(50, False, 9)], "the last one that was seen"
    assert stored(thinning, NOON + 7 * TEN, state(1, 9)) == [(70, True, 9)]


def test_a_position_before_the_first_record_counts_from_there() -> None:
    log = {0: LogRange(50, 80), 2: LogRange(0, 4)}
    assert seen({0: 10, 1: 7, 2: 4}, log) == Seen((0, 2), (50, 4), (80, 4))
    assert seen({1: 7}, log) is None


def test_groups_beyond_the_bound_are_left_out_whole_and_counted() -> None:
    found = {"a": {"orders": {0: 1, 1: 1}}, "b": {"orders": {0: 1, 1: 1, 2: 1}}, "c": {"orders": {0: 1}}}
    fitting, groups, partitions = within(found, ["a", "b", "c"], most_partitions=3)
    assert (list(fitting), groups, partitions) == (["a", "c"], 1, 3)


def test_the_age_of_a_lag_follows_from_sample_to_sample() -> None:
    ages, series = Ages(), Series("billing", "orders")
    start = datetime(2026, 11, 29, 12, tzinfo=UTC)

    def after(second: int, position: int, end: int) -> float:
        return ages.after(start + timedelta(seconds=second), {series: Seen((0,), (position,), (end,))})[series]

    assert after(0, 10, 10) == 0
    assert after(10, 10, 20) == pytest.approx(10), "the first record came right behind the sample before"
    assert after(20, 15, 20) == pytest.approx(15), "half of the records came in the first five seconds"
    assert after(30, 20, 20) == 0
    assert after(40, 5, 20) == pytest.approx(20), "a reset to a record that is older than what is known: a lower bound"
    assert after(50, 0, 3) == 0, "the topic was made again, just now"
    assert after(60, 0, 3) == pytest.approx(10)
    assert ages.after(start, {}) == {}


def test_the_course_of_a_partition_is_bounded_and_its_age_stays_right() -> None:
    ages, series = Ages(), Series("billing", "orders")
    start = datetime(2026, 11, 29, 12, tzinfo=UTC)
    found = 0.0
    for number in range(1_000):
        time = start + timedelta(seconds=10 * number)
        found = ages.after(time, {series: Seen((0,), (0,), (100 * number,))})[series]
    assert found == pytest.approx(9_990, rel=0.01)
    [course] = ages._courses[series].values()
    assert len(course) <= MOST_POINTS + 1
    caught_up = Seen((0,), (99_000,), (100_000,))
    assert ages.after(start + timedelta(seconds=10_000), {series: caught_up})[series] == pytest.approx(100, rel=0.01)
