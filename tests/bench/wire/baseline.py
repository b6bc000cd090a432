"""The figures of this run beside those that were committed last, as ratios to the relay: told, never judged.

`MESH_BENCH_BASELINE=write` puts the figures of a run in the place of those of the same names in the file.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.figures import Table, median
from tests.bench.wire.rounds import Result, middle_of

FILE = Path(__file__).parent / "baseline.json"
WRITE = "MESH_BENCH_BASELINE"
NOTHING = 0.10
"""Part by which figures of two runs differ for no reason."""
NOTHING_US = 15.0
"""The same, of latencies that are added to the relay's."""

Figures = Mapping[str, Mapping[str, float]]
"""`workload, way` -> figure -> median."""


@dataclass(slots=True)
class Baseline:
    """Takes note of results; then `table` and, if that is wanted, `keep`."""

    now: dict[str, dict[str, float]] = field(default_factory=dict)
    others: list[float] = field(default_factory=list)
    """Cores that were busy with something else, in each run."""

    def note_rates(self, result: Result) -> None:
        for one in result.series[1:]:
            self.others += one.of(lambda run: run.others)
            self.now[f"{result.workload.name}, {one.way}"] = {
                "throughput": middle_of(result.throughput(one)),
                "CPU": middle_of(result.cpu(one)),
            }

    def note_latencies(self, result: Result) -> None:
        for one in result.series[1:]:
            self.others += one.of(lambda run: run.others)
            self.now[f"{result.workload.name}, {one.way}"] = {
                "added p50 us": middle_of(result.added(one, "p50")),
                "added p99 us": middle_of(result.added(one, "p99")),
            }

    def table(self) -> Table:
        committed = read()
        rows = [
            [
                name,
                figure,
                f"{then[figure]:.2f}" if figure in then else "-",
                f"{value:.2f}",
                _verdict(figure, then, value),
            ]
            for name, figures in self.now.items()
            for then in (committed.figures.get(name, {}),)
            for figure, value in figures.items()
        ]
        note = (
            f"to the relay of the same round; a difference of up to {NOTHING:.0%}, or {NOTHING_US:.0f} us, is none. "
            f"The baseline was measured {committed.measured}; `{WRITE}=write` on a quiet machine makes the next one"
        )
        return Table("The wire, beside the committed baseline", ("", "figure", "then", "now", ""), rows, [note])

    def keep(self) -> None:
        """In the file, if that is wanted."""
        if os.environ.get(WRITE) == "write":
            busy = f"{median(self.others):.1f} of {os.cpu_count()} cores busy with something else"
            machine = f"Python {platform.python_version()}, {busy}"
            figures = {**read().figures, **self.now}
            content = {"measured": f"{time.strftime('%Y-%m-%d')}, {machine}", "figures": figures}
            FILE.write_text(f"{json.dumps(content, indent=2)}\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Committed:
    measured: str
    """When, and on what, the last of them were."""
    figures: Figures


def read() -> Committed:
    if not FILE.exists():
        return Committed("never", {})
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return Committed(content["measured"], content["figures"])


def _verdict(figure: str, then: Mapping[str, float], now: float) -> str:
    if figure not in then:
        return "new"
    difference = now - then[figure]
    if abs(difference) <= (NOTHING_US if figure.endswith("us") else NOTHING * then[figure]):
        return "as it was"
    return "better" if (difference > 0) == (figure == "throughput") else "WORSE"
