"""The judge over a mesh of its own: a fresh seed shows nothing, and mended faults that are planted again show.

`MESH_SEED` repeats the choices of an earlier run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from judge.anomalies import judged
from judge.plan import Client, Dose, planned
from judge.report import Report
from judge.run import Run
from judge.systems.jvm import command
from judge.systems.mesh import embedded_mesh
from judge.systems.shape import Shape
from tests.fixtures.toolchains import need
from tests.judge.planted_mesh import PORTS, found, moves_no_more

SECONDS = 60.0
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**31)))


@pytest.mark.timeout(900)
def test_a_minute_with_a_fresh_seed_finds_nothing_that_kafka_rules_out(
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


@pytest.mark.timeout(900)
def test_a_large_change_that_nothing_is_published_behind_is_found(kafka_jars: None, tmp_path: Path) -> None:
    """Fault 1 of the reading of control and router."""
    anomalies = found("1", tmp_path, Dose(only="^$", edits=0.5, rare=1.0))
    assert moves_no_more(anomalies), anomalies


@pytest.mark.timeout(900)
def test_routers_that_stay_with_a_control_without_the_lead_are_found(kafka_jars: None, tmp_path: Path) -> None:
    """Fault 2."""
    anomalies = found("2", tmp_path, Dose(lanes=1, only="^link control-1 to postgres cut$", rare=0.0))
    assert moves_no_more(anomalies), anomalies
