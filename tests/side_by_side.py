"""The whole suite as pytest runs side by side, each with its own servers and ports: the tests mostly wait. Spark's come
when these have ended: they work.

The output of the last run is shown as it comes, that of the others when they are done, and at the end what failed in
any. Ends with the worst exit code; at an interrupt all runs are stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.failures import failures
from tests.fixtures.bytecode import keep_bytecode
from tests.fixtures.ports import PORTS

HERE = Path(__file__).parent
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """One pytest run: folders below `tests`, and the ports that it may take."""

    folders: tuple[str, ...]
    ports: str


PARTS = (
    Part(
        (
            "integration/router",
            *(f"integration/{rest}" for rest in ("contract", "local", "local_clients", "meshctl", "pipeline_clients")),
        ),
        "20000-22399",
    ),
    Part(("unit", "fuzz", "integration/control"), "22400-24799"),
    Part(("integration/sidecar", "judge"), "24800-27199"),
    Part(("integration/gateway", "clients"), "27200-29599"),
    Part(("e2e", "compose", "chaos"), "29600-31999"),  # what measures patience comes last
)
"""Of about the same length."""
AFTERWARDS = Part(("integration/pipeline", "e2e/pipeline"), "20000-22399")
"""Spark gives each Python process that it starts 10 s to answer, whatever its settings: it has the cores to itself."""
ELSEWHERE = ("bench", "soak")
"""`make bench`, `make soak`."""


def main() -> int:
    """Runs all parts; the exit code."""
    *others, last = PARTS
    with tempfile.TemporaryDirectory(prefix="kafka-mesh-tests-") as logs:
        outputs = [Path(logs) / f"{index}.log" for index, _ in enumerate(others)]
        reports = [Path(logs) / f"{index}.xml" for index in range(len(PARTS) + 1)]
        *of_others, of_last, of_afterwards = reports
        runs = [_started(*each) for each in zip(others, of_others, outputs, strict=True)]
        try:
            shown = _started(last, of_last, None)
            runs.append(shown)
            shown.wait()
            for run, output in zip(runs, outputs, strict=False):
                run.wait()
                sys.stdout.write(output.read_text(errors="replace"))
            runs.append(_started(AFTERWARDS, of_afterwards, None))
            runs[-1].wait()
            for failure in failures(reports):
                print(failure, flush=True)
        except KeyboardInterrupt:
            return _interrupted(runs)
    codes = [abs(int(run.returncode)) for run in runs]
    return max(codes)


def _started(part: Part, report: Path, output: Path | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pytest", "--durations=20", f"--junitxml={report}"]
    command += [str(HERE / folder) for folder in part.folders]
    if part is not AFTERWARDS:
        command += [f"--ignore={HERE / folder}" for folder in AFTERWARDS.folders]
    environment = {**os.environ, PORTS: part.ports}
    keep_bytecode(environment)
    if output is None:
        return subprocess.Popen(command, env=environment)
    with output.open("wb") as stream:
        return subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)


def _interrupted(runs: Sequence[subprocess.Popen[bytes]]) -> int:
    for run in runs:  # the interrupt reached them too; who does not end by itself is killed
        try:
            run.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            run.kill()
    return 130


if __name__ == "__main__":
    sys.exit(main())
