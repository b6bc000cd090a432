"""A stage of the suite as pytest runs, some of them side by side: `make test` is one stage, `make e2e` the other.

Each run has its own servers and ports. A lane that is free takes the longest run that is left, so all lanes end about
together. The output of a run is shown when it ends. The last lines are the length of each run, and each failure.
Ends with the worst exit code; at an interrupt all runs are stopped. A run that does not end is stopped as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from tests.failures import failures
from tests.fixtures.bytecode import keep_bytecode
from tests.fixtures.ports import PORTS

HERE = Path(__file__).parent
STOP_TIMEOUT_S = 60.0
RUN_TIMEOUT_S = 3_600.0
"""Half as long again as the longest run on a busy machine (40 min): each test has a time-out."""
ENDING_TIMEOUT_S = 120.0
"""Between a run's report and the end of its process: client libraries have threads, which may wait for a broker that
has stopped, and Python waits for such threads.
"""
POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Part:
    """One pytest run: folders (or single files) below `tests`, and about how long it takes beside the others."""

    folders: tuple[str, ...]
    seconds: int
    """Rough: it only says which run comes first. Short runs come last, and end the lanes together."""

    @property
    def name(self) -> str:
        return self.folders[0].removesuffix(".py").replace("/", "-")

    def has(self, file: Path) -> bool:
        """Whether the run has the tests of this file."""
        within = [folder for part in all_parts() for folder in part.folders if file.is_relative_to(HERE / folder)]
        return max(within, key=len, default="") in self.folders

    def contains(self, folder: str) -> bool:
        """Whether the folder is below a folder of this run, and not of this run."""
        return folder not in self.folders and any(folder.startswith(f"{each}/") for each in self.folders)


@dataclass(frozen=True, slots=True)
class Stage:
    """Parts that one command runs."""

    parts: tuple[Part, ...]
    afterwards: tuple[Part, ...] = ()
    """One by one, behind the others: these parts need both cores."""

    @property
    def all(self) -> tuple[Part, ...]:
        return (*self.parts, *self.afterwards)


STAGES = {
    "test": Stage(
        (
            Part(("integration/control",), 620),
            Part(
                (
                    "integration/control/test_moves_with_data.py",
                    "integration/control/test_stitched_moves.py",
                    "integration/control/test_forks.py",
                    "integration/control/test_positions_of_moves.py",
                    "integration/control/test_producers_at_cut.py",
                    "integration/control/test_drains.py",
                    "integration/control/test_fail_backs.py",
                    "integration/control/test_strays.py",
                    "integration/control/test_copies.py",
                    "integration/control/test_replays.py",
                    "integration/control/test_replays_of_groups.py",
                    "integration/control/test_replays_of_sidecars.py",
                    "integration/control/test_rollout.py",
                    "integration/control/test_canaries.py",
                    "integration/control/test_canary_on_gateways.py",
                    "integration/control/test_switch_under_trouble.py",
                    "integration/control/test_topics.py",
                    "integration/control/test_share_groups_of_moves.py",
                    "integration/control/test_quotas_on_gateways.py",
                ),
                440,
            ),
            Part(("integration/sidecar", "integration/contract"), 700),
            Part(("integration/router",), 640),
            Part(("integration/gateway",), 400),
            Part(
                tuple(
                    f"integration/gateway/test_{subject}.py"
                    for subject in (
                        *("idempotence", "kerberos", "large_fetches", "large_produce", "listeners", "moves"),
                        *("old_clients", "older_administration", "older_cluster", "produce_of_many_partitions"),
                        *("prometheus", "protection", "receipts", "rehearsals", "renames", "revoking", "round_trips"),
                        *("rules_about_clients", "shadow_sweep", "shared_connections", "stitched_logs", "tracing"),
                        *("traffic", "two_clusters", "upstream_security", "validation", "workers"),
                    )
                ),
                420,
            ),
            Part(("unit", "fuzz"), 470),
            Part(
                (
                    "integration/gateway/groups",
                    "integration/gateway/transactions",
                    "integration/gateway/test_leaders_move.py",
                    "integration/gateway/test_quiet_consumers.py",
                    "integration/gateway/test_quotas.py",
                    "integration/gateway/test_suite_as_two_tenants.py",
                    "integration/gateway/test_tenants.py",
                ),
                600,
            ),
            Part(("integration/console",), 320),
            Part(("integration/meshctl",), 200),
            Part(("integration/local", "integration/local_clients", "integration/pipeline_clients", "kubernetes"), 110),
        )
    ),
    "e2e": Stage(
        (
            Part(("e2e",), 500),
            Part(
                tuple(
                    f"e2e/test_{subject}.py"
                    for subject in (
                        *("declared_subscriptions", "drains", "fail_over", "forks", "home_cluster_lost", "rehearsals"),
                        *(
                            "share_groups_move",
                            "stitched_moves",
                            "topic_move_kills",
                            "topic_move_trouble",
                            "topic_moves",
                        ),
                        "two_gateways",
                    )
                ),
                430,
            ),
            Part(("clients",), 420),
            Part(("judge",), 290),
            Part(("chaos",), 240),
        ),
        # Spark gives each Python process that it starts 10 s to answer, whatever its settings
        (Part(("integration/pipeline", "e2e/pipeline"), 200),),
    ),
}
"""By its command of `make`: each feature at its own level; whole meshes as users start them, foreign clients, Spark."""
ELSEWHERE = ("bench", "compose", "soak")
"""`make bench`, `make compose`, `make soak`."""
LANES = ("11000-13999", "14000-16999", "20000-22999", "23000-25999", "26000-28999", "29000-31999")
"""Their ports. Tests mostly wait: a run of `make test` keeps less than a third of a core busy."""


@dataclass(slots=True)
class Suite:
    """Where the runs are, while they run and behind."""

    folder: Path
    free: SimpleQueue[str] = field(default_factory=SimpleQueue)
    """Ports of lanes."""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lengths: dict[str, float] = field(default_factory=dict)
    lingering: list[str] = field(default_factory=list)
    """Runs whose processes were stopped behind their reports."""
    telling: threading.Lock = field(default_factory=threading.Lock)

    def run(self, part: Part) -> int:
        """The exit code."""
        ports, began = self.free.get(), time.monotonic()
        with self.telling:
            print(f"{part.name} begins", flush=True)
        output = self.folder / f"{part.name}.log"
        with output.open("wb") as stream:
            run = subprocess.Popen(
                _command(part, self.report(part)), env=_environment(ports), stdout=stream, stderr=subprocess.STDOUT
            )
        self.running.append(run)
        code = self._ended(run, part)
        self.free.put(ports)
        with self.telling:
            self.lengths[part.name] = time.monotonic() - began
            print(output.read_text(errors="replace"), flush=True)
        return abs(code)

    def _ended(self, run: subprocess.Popen[bytes], part: Part) -> int:
        """The exit code, of a run that had to be stopped as well."""
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                return run.wait(POLL_S)
            if self._has_reported(part):
                self.lingering.append(part.name)
                _stopped(run, signal.SIGABRT)
                return 1 if any(failures([self.report(part)])) else 0
        print(f"{part.name} has not ended after {RUN_TIMEOUT_S:.0f} s, and is stopped", flush=True)
        return _stopped(run, signal.SIGABRT)

    def _has_reported(self, part: Part) -> bool:
        """Whether the report is so old that the process should have ended."""
        report = self.report(part)
        return report.exists() and time.time() - report.stat().st_mtime > ENDING_TIMEOUT_S

    def report(self, part: Part) -> Path:
        return self.folder / f"{part.name}.xml"

    def interrupted(self) -> None:
        """The interrupt reached the runs too; who does not end by itself is killed."""
        for run in self.running:
            _stopped(run)


def all_parts() -> Iterator[Part]:
    """Parts of all stages."""
    for stage in STAGES.values():
        yield from stage.all


def _stopped(run: subprocess.Popen[bytes], by: signal.Signals | None = None) -> int:
    """The exit code of a run that gets this signal, or has got one; a run that goes on all the same is killed.

    At SIGABRT Python's fault handler writes the place of each thread.
    """
    if by is not None:
        run.send_signal(by)
    try:
        return run.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        run.kill()
        return run.wait()


def main() -> int:
    """Runs the stage that the command line names; the exit code."""
    stage = STAGES[sys.argv[1]]
    longest_first = sorted(stage.parts, key=lambda part: -part.seconds)
    with tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder:
        suite = Suite(Path(folder))
        for ports in LANES:
            suite.free.put(ports)
        with ThreadPoolExecutor(len(LANES)) as lanes:
            codes = [lanes.submit(suite.run, part) for part in longest_first]
            try:
                worst = max(code.result() for code in codes)
                worst = max([worst, *map(suite.run, stage.afterwards)])
            except KeyboardInterrupt:
                _cancel(codes)
                suite.interrupted()
                return 130
        for name, seconds in suite.lengths.items():
            print(f"{name}: {seconds:.0f} s", flush=True)
        for name in suite.lingering:
            print(
                f"{name}: its tests ended, its process did not; its output ends with the places of its threads",
                flush=True,
            )
        for failure in failures([suite.report(part) for part in stage.all]):
            print(failure, flush=True)
    return worst


def _cancel(codes: Sequence[Future[int]]) -> None:
    for code in codes:
        code.cancel()


def _command(part: Part, report: Path) -> list[str]:
    # pytest's own place is one for all runs: each run that ends would delete there what other runs have left
    place = report.parent / f"t{list(all_parts()).index(part)}"  # short: paths of sockets have 107 characters
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "--durations=20", f"--junitxml={report}"]
    command += ["-m", "not soak"]
    command.append(f"--basetemp={place}")
    command += [str(HERE / folder) for folder in part.folders]
    command += [
        f"--ignore={HERE / folder}" for other in all_parts() for folder in other.folders if part.contains(folder)
    ]
    return command


def _environment(ports: str) -> dict[str, str]:
    environment = {**os.environ, PORTS: ports}
    keep_bytecode(environment)
    return environment


if __name__ == "__main__":
    sys.exit(main())
