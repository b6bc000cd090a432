"""How long it is waited before a driver is started again, and how many there are."""

from __future__ import annotations

import pytest

from services.pipeline.serving.process import drivers_at_a_time
from services.pipeline.serving.restarts import Restarts

GB = 1024**3


def test_pauses_become_longer_while_failures_follow_one_another() -> None:
    now = 0.0
    restarts = Restarts(first_s=1, longest_s=30, steady_s=60, clock=lambda: now)
    bounds = [(0.5, 1), (1, 2), (2, 4), (4, 8), (8, 16), (15, 30), (15, 30)]
    for shortest, longest in bounds:
        restarts.began()
        now += 1
        assert shortest <= restarts.failed() <= longest
    assert restarts.in_a_row == len(bounds)


def test_what_ran_for_long_has_no_failures_before_it() -> None:
    now = 0.0
    restarts = Restarts(first_s=1, longest_s=30, steady_s=60, clock=lambda: now)
    for _ in range(5):
        restarts.failed()
    restarts.began()
    now += 60
    assert restarts.failed() <= 1
    assert restarts.in_a_row == 1


@pytest.mark.parametrize(
    ("heap", "jobs", "memory_gb", "cores", "drivers"),
    [("1g", 0, 64, 32, 5), ("1g", 0, 64, 2, 2), ("1g", 2, 8, 8, 2), ("512m", 2, 8, 8, 4), ("4g", 2, 8, 8, 1)],
)
def test_drivers_have_room_beside_the_continuous_jobs(
    heap: str, jobs: int, memory_gb: int, cores: int, drivers: int
) -> None:
    assert drivers_at_a_time(heap, jobs, memory=memory_gb * GB, cores=cores) == drivers
