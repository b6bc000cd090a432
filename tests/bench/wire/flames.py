"""Where a process in the middle spends its time under a workload, drawn by py-spy, if that is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.ways import Way
from tests.bench.wire.rig import Rig
from tests.bench.wire.workloads import Workload

SAMPLES_PER_S = 500
SECONDS = 3
BOUND_S = 60.0


def draw(rig: Rig, way: Way, workload: Workload, picture: Path) -> str:
    """What to tell of it: where the picture is, or why there is none."""
    profiler = shutil.which("py-spy", path=f"{Path(sys.executable).parent}") or shutil.which("py-spy")
    if profiler is None:
        return "no flame graphs: py-spy is not installed; `make bench FLAMES=1` has it"
    if way.middle is None:
        return f"no flame graph of {way.name}: nobody stands in the middle"
    command = [profiler, "record", "--pid", str(way.middle.pid), "--output", str(picture), "--format", "flamegraph"]
    command += ["--duration", str(SECONDS), "--rate", str(SAMPLES_PER_S), "--nonblocking"]
    picture.parent.mkdir(parents=True, exist_ok=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watching:
        try:
            rig.run(way, workload, SECONDS)
            said, _ = watching.communicate(timeout=BOUND_S)
        finally:
            watching.kill()
    if watching.returncode or not picture.exists():
        return (
            f"no flame graph of {workload.name}: {said.strip().splitlines()[-1] if said.strip() else 'py-spy failed'}"
        )
    return f"{workload.name}: {picture}"
