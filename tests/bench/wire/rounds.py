"""Rounds in which the ways take turns, and what they come to: each figure beside the relay's of the same round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.bench.figures import median, ratios, spread
from tests.bench.ways import Way
from tests.bench.wire.rig import Rig, Run
from tests.bench.wire.workloads import Workload

BUDGET_S = 75.0
"""After so long a workload begins no further round: on a busy machine there are fewer of them, not more minutes."""
QUIET_CORES = 0.15
"""Outside use up to which a round is a quiet one."""
QUIET_ENOUGH = 3
"""Quiet rounds from which on the others are not counted."""


@dataclass(slots=True)
class Series:
    """What one way gave, a run for each round that counts."""

    way: str
    runs: list[Run] = field(default_factory=list)

    def of(self, figure: Callable[[Run], float]) -> list[float]:
        return [figure(run) for run in self.runs]

    def latencies(self, percentile: str) -> list[float]:
        return [run.latency_us[percentile] for run in self.runs]


@dataclass(frozen=True, slots=True)
class Result:
    workload: Workload
    series: Sequence[Series]
    """The first is the relay's."""
    measured: int
    """Rounds; those that count may be fewer."""

    def rate_rows(self) -> list[list[str]]:
        relay = self.series[0]
        return [
            [
                self.workload.name if one is relay else "",
                one.way,
                spread(one.of(lambda run: run.rate)),
                spread(one.of(lambda run: run.mb_per_s)),
                spread(self.throughput(one), 2),
                spread(one.of(lambda run: run.cpu_us_per_request), 1),
                spread(one.of(lambda run: run.cpu_ms_per_mb), 2),
                spread(self.cpu(one), 2),
                spread(one.of(lambda run: run.fairness), 2),
                self._others(one),
                self._rounds(one),
                "" if one is relay else str(self.workload.target),
            ]
            for one in self.series
        ]

    def latency_rows(self) -> list[list[str]]:
        relay = self.series[0]
        return [
            [
                self.workload.name if one is relay else "",
                one.way,
                spread(one.latencies("p50")),
                spread(one.latencies("p99")),
                spread(one.latencies("p999")),
                spread(one.latencies("max")),
                "" if one is relay else spread(self.added(one, "p50")),
                "" if one is relay else spread(self.added(one, "p99")),
                spread(one.of(lambda run: run.cpu_us_per_request), 1),
                self._others(one),
                self._rounds(one),
                "" if one is relay else str(self.workload.target),
            ]
            for one in self.series
        ]

    def throughput(self, one: Series) -> list[float]:
        """To the relay's."""
        return ratios(one.of(lambda run: run.rate), self.series[0].of(lambda run: run.rate))

    def cpu(self, one: Series) -> list[float]:
        """For each request, to the relay's."""
        figure: Callable[[Run], float] = lambda run: run.cpu_us_per_request  # noqa: E731
        return ratios(one.of(figure), self.series[0].of(figure))

    def added(self, one: Series, percentile: str) -> list[float]:
        """Microseconds on top of the relay's."""
        pairs = zip(one.latencies(percentile), self.series[0].latencies(percentile), strict=True)
        return [latency - relay for latency, relay in pairs]

    def _others(self, one: Series) -> str:
        return spread(one.of(lambda run: run.others), 1)

    def _rounds(self, one: Series) -> str:
        return f"{len(one.runs)} of {self.measured}"


RATE_COLUMNS = (
    "workload",
    "way",
    "requests/s",
    "MB/s",
    "to relay",
    "CPU us/request",
    "CPU ms/MB",
    "CPU to relay",
    "fairness",
    "others, cores",
    "rounds",
    "wanted",
)
LATENCY_COLUMNS = (
    "workload",
    "way",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "max us",
    "added p50",
    "added p99",
    "CPU us/request",
    "others, cores",
    "rounds",
    "wanted",
)


def take_turns(rig: Rig, ways: Sequence[Way], workload: Workload, rounds: int, seconds: float) -> Result:
    """Each way once a round, each round begins with another one. One round at least."""
    began = time.monotonic()
    taken: list[list[Run]] = []
    for number in range(rounds):
        if number and time.monotonic() - began > BUDGET_S:
            break
        turn = number % len(ways)
        found = {way.name: rig.run(way, workload, seconds) for way in (*ways[turn:], *ways[:turn])}
        taken.append([found[way.name] for way in ways])
    quiet = [runs for runs in taken if all(run.others <= QUIET_CORES for run in runs)]
    counted = quiet if len(quiet) >= QUIET_ENOUGH else taken
    series = [Series(way.name, [runs[place] for runs in counted]) for place, way in enumerate(ways)]
    return Result(workload, series, len(taken))


def middle_of(values: Sequence[float]) -> float:
    """For the baseline: as many digits as mean anything."""
    return round(median(values), 3)
