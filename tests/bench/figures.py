"""Figures of repeated runs: median, spread, ratios; the sheet that `make bench` prints and writes."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Median and range: `210 (200..215)`."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def quartiles(values: Sequence[float], digits: int = 0) -> str:
    """Median and quartiles, which a few disturbed runs leave as they are: `210 (205..212)`."""
    first, _, third = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{median(values):.{digits}f} ({first:.{digits}f}..{third:.{digits}f})"


def ratios(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Of the same round each: what disturbs a round disturbs both."""
    return [value / reference for value, reference in zip(values, base, strict=True) if reference]


@dataclass(slots=True)
class Disturbance:
    """Cores that processes outside the measurement kept busy, on average."""

    cores: float = 0.0


@contextmanager
def watched(*ours: psutil.Process) -> Iterator[Disturbance]:
    """How busy the machine was meanwhile, without `ours`, this process, and the children that ended."""
    found = Disturbance()
    own = [psutil.Process(), *ours]
    began, busy, used = time.monotonic(), _busy_s(), _used_s(own)
    yield found
    elapsed = time.monotonic() - began
    found.cores = max(0.0, (_busy_s() - busy) - (_used_s(own) - used)) / elapsed


def _busy_s() -> float:
    times = psutil.cpu_times()
    idle: float = times.idle + getattr(times, "iowait", 0.0)
    # a guest's time is part of the user's
    return float(sum(times)) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def _used_s(processes: Sequence[psutil.Process]) -> float:
    spent = 0.0
    for process in processes:
        times = process.cpu_times()
        spent += times.user + times.system
        if process.pid == os.getpid():
            spent += times.children_user + times.children_system
    return spent


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        cells = [list(self.columns), *(list(row) for row in self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(self.columns))]
        lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        lines.insert(1, " | ".join("-" * width for width in widths))
        body = "\n".join(f"| {line} |" for line in lines)
        return "\n".join((f"## {self.title}", "", body, "", *(f"- {note}" for note in self.notes))).rstrip() + "\n"


@dataclass(slots=True)
class Sheet:
    """All tables of a run, under a head that says where and when."""

    began: float = field(default_factory=time.time)
    load_at_begin: float = field(default_factory=lambda: os.getloadavg()[0])
    tables: list[Table] = field(default_factory=list)

    def add(self, table: Table) -> None:
        print(f"\n{table.markdown()}", flush=True)
        self.tables.append(table)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join((self._head(), *(table.markdown() for table in self.tables))), encoding="utf-8")

    def _head(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.began))
        load = f"load average {self.load_at_begin:.1f} at the begin, {os.getloadavg()[0]:.1f} at the end"
        machine = (
            f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
        )
        return f"# Bench, {when}, commit {_commit()}\n\n{machine}; {load}.\n"


def _commit() -> str:
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return run.stdout.strip() or "unknown"
