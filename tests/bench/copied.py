"""How fast a full topic comes to another cluster, and what that costs in CPU: for mirrors and for copies."""

from __future__ import annotations

import time
from typing import NamedTuple

import psutil

from tests.fixtures.record_rules import Side, ends

WITHIN_S = 300.0
WARM = 0.2
"""The part of the records that is not counted: a process starts, and a JVM warms up."""
LOOK_S = 0.02


class Cost(NamedTuple):
    """A record's way."""

    cpu_us: float
    per_second: float


def cost(target: Side, topic: str, records: int, process: psutil.Process) -> Cost:
    """From a fifth of the records to all of them; `process` and its children do the work."""
    deadline = time.monotonic() + WITHIN_S
    first: tuple[int, float, float] | None = None
    while True:
        assert time.monotonic() < deadline, f"{topic} is not complete"
        done = sum(ends(target, topic).values())
        now = (done, time.monotonic(), _cpu_s(process))
        if first is None and done >= WARM * records:
            first = now
        if done >= records:  # marks of transactions count as records here: some hundred of a million
            assert first is not None
            moved, seconds, cpu = (late - early for late, early in zip(now, first, strict=True))
            return Cost(1e6 * cpu / moved, moved / seconds)
        time.sleep(LOOK_S)


def _cpu_s(process: psutil.Process) -> float:
    """CPU seconds of the process and its children, all threads."""
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)
