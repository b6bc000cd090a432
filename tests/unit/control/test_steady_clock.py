"""Control's own clock, beside a wall clock that somebody sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from services.control.steady_clock import SteadyClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_clock_goes_on_by_what_has_passed_and_not_by_what_somebody_sets() -> None:
    wall, passed = [NOON], [100.0]
    clock = SteadyClock(lambda: wall[0], lambda: passed[0])
    wall[0], passed[0] = NOON - timedelta(hours=3), 107.0
    assert clock() == NOON + timedelta(seconds=7)
    wall[0], passed[0] = NOON + timedelta(days=3), 108.0
    assert clock() == NOON + timedelta(seconds=8)
