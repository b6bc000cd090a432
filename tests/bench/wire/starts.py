"""CPU of gateways that are started several times each: two processes of one program differ for as long as they live.

Where the loader and the allocator put code and data makes up to 8 % of a request here. So a difference of some percent
between two gateways needs several starts of each, and more rounds of the same processes do not help.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.bench.figures import median
from tests.bench.wire.rig import Rig
from tests.bench.wire.workloads import Workload

STARTS = 6
CPU_COLUMNS = ("workload", "way", "CPU us/request of each start", "mean", "to the first way")


@dataclass(frozen=True, slots=True)
class Started:
    """One gateway: CPU microseconds for each request, the median of all rounds, by start."""

    way: str
    starts: Sequence[float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.starts)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return statistics.stdev(self.starts) / len(self.starts) ** 0.5 if len(self.starts) > 1 else 0.0

    def to(self, first: Started) -> str:
        """The ratio, with its standard error: `+3.1 % (1.2)`."""
        ratio = self.mean / first.mean
        error = ratio * ((self.error / self.mean) ** 2 + (first.error / first.mean) ** 2) ** 0.5
        return f"{100 * (ratio - 1):+.1f} % ({100 * error:.1f})"


@dataclass(frozen=True, slots=True)
class StartsResult:
    workload: Workload
    ways: Sequence[Started]
    rounds: int

    def rows(self) -> list[list[str]]:
        first = self.ways[0]
        return [
            [
                self.workload.name if one is first else "",
                one.way,
                " ".join(f"{each:.2f}" for each in sorted(one.starts)),
                f"{one.mean:.2f} ({one.error:.2f})",
                "" if one is first else one.to(first),
            ]
            for one in self.ways
        ]

    def note(self) -> str:
        return f"{self.workload.name}: {self.workload.what}; {self.rounds} rounds, {len(self.ways[0].starts)} starts"


def of_all_starts(rig: Rig, workload: Workload, rounds: int, seconds: float) -> StartsResult:
    """All gateways of the rig in turns, without the relay; the starts of one variant stand side by side there."""
    ways = list(rig.ways[1:])
    found: list[list[float]] = [[] for _ in ways]
    for number in range(rounds):
        places = range(len(ways))
        for place in (*places[number % len(ways) :], *places[: number % len(ways)]):
            found[place].append(rig.run(ways[place], workload, seconds).cpu_us_per_request)
    figures = zip((way.name for way in ways), map(median, found), strict=True)
    named = groupby(figures, key=lambda each: each[0])
    return StartsResult(workload, [Started(name, [figure for _, figure in of]) for name, of in named], rounds)
