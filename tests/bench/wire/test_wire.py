"""What the gateway costs beside a relay that reads nothing: over the bare wire, with a load generator that checks every
answer and a broker that keeps nothing.

A workload is a test, so `-k W1s` measures that one alone; the tables are written when all of them are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.bench.figures import Sheet, Table
from tests.bench.wire import flames
from tests.bench.wire.baseline import Baseline
from tests.bench.wire.programs import Programs
from tests.bench.wire.rig import PLAIN, RULES, Rig, rig
from tests.bench.wire.rounds import LATENCY_COLUMNS, QUIET_CORES, RATE_COLUMNS, Result, take_turns
from tests.bench.wire.starts import CPU_COLUMNS, StartsResult, of_all_starts
from tests.bench.wire.workloads import (
    AS_FAST_AS_IT_GOES,
    CROWDS,
    LATENCIES,
    SEVERAL_TOPICS,
    TWO_CLUSTERS_FETCH,
    W1S,
    W4,
    W4_1_KIB,
    Workload,
)

NOT_BY_THE_CLOCK = 3600
"""Seconds for a benchmark that hangs; a slow one ends by itself."""
CROWD_WARM_UP_S = 5
"""Until a crowd is connected and quiet; when its first polls are answered, too, the first wave is through."""
PICTURES = Path(__file__).resolve().parents[3] / "build"

pytestmark = pytest.mark.timeout(NOT_BY_THE_CLOCK)


@dataclass(slots=True)
class Board:
    """Results for one table each."""

    rates: list[Result] = field(default_factory=list)
    several: list[Result] = field(default_factory=list)
    variants: list[Result] = field(default_factory=list)
    watched: list[StartsResult] = field(default_factory=list)
    guarded: list[StartsResult] = field(default_factory=list)
    latencies: list[Result] = field(default_factory=list)
    crowds: list[list[str]] = field(default_factory=list)

    def tables(self) -> Iterator[Table]:
        by_rates = (
            ("The wire: throughput and CPU", self.rates),
            ("The wire: several topics and clusters in a request", self.several),
            ("The wire: other settings of the gateway", self.variants),
        )
        for title, results in by_rates:
            if results:
                yield Table(title, RATE_COLUMNS, [row for each in results for row in each.rate_rows()], _notes(results))
        for title, started in (
            ("The wire: what counting and tracing cost", self.watched),
            ("The wire: what ACLs and quotas cost", self.guarded),
        ):
            if started:
                rows = [row for each in started for row in each.rows()]
                yield Table(title, CPU_COLUMNS, rows, [*(each.note() for each in started), STARTS_NOTE])
        if self.latencies:
            rows = [row for each in self.latencies for row in each.latency_rows()]
            yield Table("The wire: latency", LATENCY_COLUMNS, rows, [*_notes(self.latencies), LATENCY_NOTE])
        if self.crowds:
            columns = ("crowd", "way", "answers/s", "cores", "MiB", "KiB each", "others, cores", "wanted")
            yield Table("The wire: crowds", columns, self.crowds, [CROWD_NOTE])


LATENCY_NOTE = (
    "from the time at which a request was meant to leave to its answer; added: to the relay's, in the same round"
)
STARTS_NOTE = "medians of rounds in which all starts take turns; means of starts, with their standard error"
CROWD_NOTE = (
    "one run each, of a gateway that has just started; KiB each: resident memory that came with the connections"
)


def _notes(results: list[Result]) -> list[str]:
    return [
        *(f"{each.workload.name}: {each.workload.what}" for each in results),
        f"medians and ranges of rounds in which the ways take turns; only those with at most {QUIET_CORES} cores of "
        "outside use count, if there are three",
        f"load and brokers on one core, the middle on another; {RULES:,} rules of every kind; every answer checked",
    ]


@pytest.fixture(scope="module")
def board(sheet: Sheet) -> Iterator[Board]:
    made = Board()
    yield made
    for table in made.tables():
        sheet.add(table)


def of_name(workload: Workload) -> str:
    return workload.name


@pytest.mark.parametrize("workload", AS_FAST_AS_IT_GOES, ids=of_name)
def test_rates(
    wire_rig: Rig, board: Board, baseline: Baseline, workload: Workload, rounds: int, seconds: float
) -> None:
    result = take_turns(wire_rig, wire_rig.ways, workload, rounds, seconds)
    board.rates.append(result)
    baseline.note_rates(result)


@pytest.mark.parametrize("workload", LATENCIES, ids=of_name)
def test_latency(
    wire_rig: Rig, board: Board, baseline: Baseline, workload: Workload, rounds: int, seconds: float
) -> None:
    result = take_turns(wire_rig, wire_rig.ways, workload, rounds, seconds)
    board.latencies.append(result)
    baseline.note_latencies(result)


@pytest.mark.parametrize("workload", (*SEVERAL_TOPICS, TWO_CLUSTERS_FETCH), ids=of_name)
def test_several(
    wire_rig: Rig, board: Board, baseline: Baseline, workload: Workload, rounds: int, seconds: float
) -> None:
    result = take_turns(wire_rig, wire_rig.ways, workload, rounds, seconds)
    board.several.append(result)
    baseline.note_rates(result)


@pytest.mark.parametrize("workload", (W1S, W4), ids=of_name)
def test_variants(variants_rig: Rig, board: Board, workload: Workload, rounds: int, seconds: float) -> None:
    board.variants.append(take_turns(variants_rig, variants_rig.ways, workload, rounds, seconds))


@pytest.mark.parametrize("workload", (W4, W4_1_KIB, W1S), ids=of_name)
def test_watched(watched_rig: Rig, board: Board, workload: Workload, rounds: int, seconds: float) -> None:
    """Counts and traces cost small requests most."""
    board.watched.append(of_all_starts(watched_rig, workload, rounds, seconds))


@pytest.mark.parametrize("workload", (W4, W1S), ids=of_name)
def test_guarded(guarded_rig: Rig, board: Board, workload: Workload, rounds: int, seconds: float) -> None:
    board.guarded.append(of_all_starts(guarded_rig, workload, rounds, seconds))


@pytest.mark.parametrize("workload", CROWDS, ids=of_name)
def test_crowds(wire_programs: Programs, board: Board, tmp_path: Path, workload: Workload, seconds: float) -> None:
    with rig(wire_programs, (PLAIN,), tmp_path) as fresh:
        for way in fresh.ways:
            first_wave_s = CROWD_WARM_UP_S + workload.max_wait_ms / 1000
            run = fresh.run(way, workload, max(seconds, workload.least_seconds), first_wave_s)
            each = (run.mib - run.mib_before) * 1024 / workload.connections
            figures = [f"{run.rate:.0f}", f"{run.cores:.3f}", f"{run.mib:.0f}", f"{each:.1f}", f"{run.others:.1f}"]
            board.crowds.append(
                [workload.name, way.name, *figures, "" if way is fresh.ways[0] else str(workload.target)]
            )


def test_flames(wire_rig: Rig, sheet: Sheet) -> None:
    told = [flames.draw(wire_rig, wire_rig.ways[1], each, PICTURES / f"flames-{each.name}.svg") for each in (W1S, W4)]
    sheet.add(Table("The wire: flame graphs", ("",), [[line] for line in dict.fromkeys(told)]))
