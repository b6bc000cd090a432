"""CPU of a job by part: Spark's JVM, its Python workers, the driver, PostgreSQL, Kafka."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil


@contextmanager
def cpu_by_part() -> Iterator[dict[str, float]]:
    """Seconds of CPU by part, of what this process has started; they are there when it ends."""
    found: dict[str, float] = {}
    before = _used()
    yield found
    found.update({part: seconds - before.get(part, 0.0) for part, seconds in _used().items()})


def us_of_each(spent: Mapping[str, float], count: int) -> str:
    """What `cpu_by_part` found, in microseconds for each of so many."""
    return ", ".join(f"{part} {1e6 * seconds / count:.1f}" for part, seconds in sorted(spent.items()))


def _used() -> dict[str, float]:
    me = psutil.Process()
    spent: dict[str, float] = defaultdict(float)
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            part = "driver" if process.pid == me.pid else _part(process)
            spent[part] += times.user + times.system
            if process.pid != me.pid:  # ours that have ended were parts by themselves
                spent[part] += times.children_user + times.children_system
    return spent


def _part(process: psutil.Process) -> str:
    name, command = process.name(), " ".join(process.cmdline())
    if name.startswith("postgres"):
        return "PostgreSQL"
    if "pyspark.daemon" in command:
        return "workers"
    if name == "java":
        return "Kafka" if "kafka.Kafka" in command else "JVM"
    return "others"
