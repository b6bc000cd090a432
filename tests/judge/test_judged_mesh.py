"""The judge over a mesh of its own: a fresh seed shows nothing. `tests/soak` has longer runs, and plants mended faults.

`MESH_SEED` repeats the choices of an earlier run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from judge.anomalies import judged
from judge.plan import Client, planned
from judge.report import Report
from judge.run import Run
from judge.systems.jvm import command
from judge.systems.mesh import embedded_mesh
from judge.systems.shape import Shape
from tests.fixtures.toolchains import need
from tests.judge.planted_mesh import PORTS

SECONDS = 20.0
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**31)))


@pytest.mark.timeout(900)
def test_a_run_with_a_fresh_seed_finds_nothing_that_kafka_rules_out(
    kafka_jars: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need("javac")
    with capsys.disabled():
        print(f" MESH_SEED={SEED} ", flush=True)
    shape = Shape.chosen(SEED, None, None, None, 1)
    with embedded_mesh(tmp_path, shape, calm=False, moves=True, ports=PORTS) as system:
        plan = planned(SEED, clients=[*Client], moves=True, late=False)
        history = Run(plan, system, SECONDS, say=print, java=command()).judged_history()
    report = Report(history, tuple(judged(history)))
    report.write(Path("build/judge"))
    assert not report.bad, f"{report.failures()}\nMESH_SEED={SEED}, see build/judge/report.html\n{report.summary()}"
