"""Control's clock: the wall clock as it was when control started, carried on by a clock that nobody can set.

If somebody sets the wall clock while control runs, events keep their order, and canaries and schedules keep their pace.
Control takes the new time when it is started again; the time of an event is never before the time of the last event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from prometheus_client import Gauge

TOLERATED_S = 5.0
"""Seconds between the two clocks, above which the log says so."""

Clock = Callable[[], datetime]

log = structlog.get_logger(__name__)
difference_gauge = Gauge("kafka_mesh_control_wall_clock_difference_seconds", "The wall clock less control's own clock.")


_SINCE = datetime.now(UTC) - timedelta(seconds=time.monotonic())


def steady_clock() -> datetime:
    """A time of day that nobody sets: no member is gone because somebody sets the wall clock."""
    return _SINCE + timedelta(seconds=time.monotonic())


class SteadyClock:
    """Call it for the time, in UTC."""

    def __init__(
        self, wall: Clock = lambda: datetime.now(UTC), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._began, self._began_at = monotonic(), wall()
        self._told = False
        difference_gauge.set_function(lambda: self._difference(self._carried_on()))

    def __call__(self) -> datetime:
        now = self._carried_on()
        differs = abs(self._difference(now)) > TOLERATED_S
        if differs and not self._told:
            log.warning(
                "the wall clock was set: control goes on by its own clock until it is started again",
                seconds=round(self._difference(now), 1),
            )
        self._told = differs
        return now

    def _carried_on(self) -> datetime:
        return self._began_at + timedelta(seconds=self._monotonic() - self._began)

    def _difference(self, now: datetime) -> float:
        return (self._wall() - now).total_seconds()
