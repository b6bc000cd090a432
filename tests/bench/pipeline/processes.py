"""The cost of the processes of a job: CPU since a look before, memory, and how many Kafka clients they have."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

LOOK_S = 0.2
CLIENT_THREAD = "rdk:main"
"""Each client of librdkafka has one."""


@dataclass(slots=True)
class Taken:
    """By a tree of processes, while somebody looked."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    """By what a process is."""
    peak_mb: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    most_clients: int = 0

    @property
    def all_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


@contextmanager
def watching(pid: int, kind: Callable[[psutil.Process], str]) -> Iterator[Taken]:
    """`kind` says what a process of the tree counts as; a process that ends between two looks loses a fifth of a
    second of CPU at most.
    """
    taken, begun, last = Taken(), dict[int, float](), dict[int, tuple[str, float]]()
    over = threading.Event()
    for process in _tree(pid):
        with suppress(psutil.Error):
            begun[process.pid] = _cpu_s(process)

    def look() -> None:
        clients, memory = 0, defaultdict[str, int](int)
        for process in _tree(pid):
            with suppress(psutil.Error):
                what = kind(process)
                last[process.pid] = what, _cpu_s(process)
                memory[what] += process.memory_info().rss >> 20
                clients += clients_of(process.pid)
        taken.most_clients = max(taken.most_clients, clients)
        for what, size in memory.items():
            taken.peak_mb[what] = max(taken.peak_mb[what], size)

    def run() -> None:
        while not over.wait(LOOK_S):
            look()

    thread = threading.Thread(target=run, name="watching", daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        over.set()
        thread.join()
        look()
        taken.cpu_s = _since(begun, last)


def of_job(process: psutil.Process) -> str:
    """The kind of a process of a job."""
    return "jvm" if process.name() == "java" else "workers" if "pyspark" in " ".join(process.cmdline()) else "driver"


def clients_of(pid: int) -> int:
    """Clients of librdkafka that a process has."""
    count = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):
            count += thread.read_text().startswith(CLIENT_THREAD)
    return count


def _since(begun: Mapping[int, float], last: Mapping[int, tuple[str, float]]) -> dict[str, float]:
    spent: dict[str, float] = defaultdict(float)
    for pid, (what, cpu_s) in last.items():
        spent[what] += cpu_s - begun.get(pid, 0.0)
    return dict(spent)


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
