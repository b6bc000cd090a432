"""A share of a rate, as pauses."""

from __future__ import annotations

from services.pipeline.copying.transactions import BURST_S, Pace


def test_many_records_take_the_time_that_the_rate_says() -> None:
    pace, now = Pace(100.0, 0.0), 0.0
    for _ in range(400):
        now += pace.pause_after(5, now)
    assert 2_000 / 100 - BURST_S <= now <= 2_000 / 100 + BURST_S


def test_time_that_was_not_used_is_not_made_up_for() -> None:
    pace = Pace(100.0, 0.0)
    assert pace.pause_after(100, 1_000.0) >= 1.0 - BURST_S


def test_without_a_rate_nobody_waits() -> None:
    pace = Pace(0.0, 0.0)
    assert (pace.most_at_once, pace.pause_after(1_000_000, 0.0)) == (0, 0.0)


def test_a_slow_rate_goes_record_by_record() -> None:
    assert Pace(0.1, 0.0).most_at_once == 1
    assert Pace(0.1, 0.0).pause_after(1, 0.0) >= 9.0
