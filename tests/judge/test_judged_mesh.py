"""The judge over a mesh of its own: a fresh seed shows nothing, and mended faults that are planted again show.

`MESH_SEED` repeats the choices of an earlier run.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from judge.anomalies import Anomaly, judged
from judge.faults.cable import State
from judge.plan import Client, Dose, Plan, Process, Role, planned
from judge.report import Report
from judge.run import Run
from judge.systems.jvm import command
from judge.systems.mesh import embedded_mesh
from judge.systems.shape import Shape
from tests.fixtures.toolchains import need

SECONDS = 60.0
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**31)))
PLANTS = Path(__file__).parent / "planted_back"
PORTS = os.environ.get("MESH_TEST_PORTS", "20000-32000")
SMALL = Shape(gateways=2, workers=1, routers=2, controls=2, brokers=1)
RECOVERY_S = 25.0
"""A mesh that a planted fault holds up never recovers."""
MOST_S = 60.0
SLOW_S = 0.7
WRITERS = 8


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
    assert not report.bad, f"MESH_SEED={SEED}, see build/judge/report.html\n{report.summary()}"


@pytest.mark.timeout(900)
def test_a_large_change_that_nothing_is_published_behind_is_found(kafka_jars: None, tmp_path: Path) -> None:
    """Fault 1 of the reading of control and router."""
    found = _found("1", tmp_path, Dose(only="^$", edits=0.5, rare=1.0))
    assert _moves_no_more(found), found


@pytest.mark.timeout(900)
def test_routers_that_stay_with_a_control_without_the_lead_are_found(kafka_jars: None, tmp_path: Path) -> None:
    """Fault 2."""
    found = _found("2", tmp_path, Dose(lanes=1, only="^link control-1 to postgres cut$", rare=0.0))
    assert _moves_no_more(found), found


@pytest.mark.timeout(900)
def test_a_late_switch_without_a_barrier_is_found(kafka_jars: None, tmp_path: Path) -> None:
    """Fault 3: the home cluster stands still between HELD and the word of the switch."""
    dose = Dose(lanes=1, only="^freeze kafka-c1-1$", with_a_move=1.0, edits=0.0)
    found = _found("3", tmp_path, dose, slow="to controls", longest_s=20.0)
    assert {"wrong-cluster", "two-writers", "misrouted"} & {each.rule for each in found}, found


def _found(planted: str, folder: Path, dose: Dose, slow: str = "", longest_s: float = 8.0) -> list[Anomaly]:
    """What the judge finds within a minute; the links with `slow` in their names are slow all the time."""
    settings = {"PYTHONPATH": str(PLANTS), "JUDGE_PLANTED": planted, "KAFKA_MESH_CONTROL_HOLD_MS": "2500"}
    with embedded_mesh(folder, SMALL, calm=False, moves=True, ports=PORTS, settings=settings) as system:
        for name, cables in system.links.items():
            for cable in cables if slow and slow in name else ():
                cable.delay_s = SLOW_S
                cable.become(State.SLOW)
        system.faults = [replace(each, longest_s=longest_s) for each in system.faults]
        run = Run(_small_plan(), system, MOST_S - RECOVERY_S, shake=False, dose=dose, recovery_s=RECOVERY_S, say=print)
        history = run.judged_history()
    report = Report(history, tuple(judged(history)))
    report.write(Path("build/judge-planted") / planted)
    print(report.summary())
    return report.bad


def _small_plan() -> Plan:
    """Of few partitions, where writers meet, and of many writers: where one cluster stands still, some go on."""
    plan = planned(1, clients=[Client.OWN, Client.LIBRDKAFKA], moves=True, late=False)
    writers = tuple(Process(f"writer-{number}-own", Role.WRITER, Client.OWN) for number in range(WRITERS))
    return replace(
        plan,
        processes=(*plan.processes, *writers),
        topics=tuple(replace(each, partitions=min(each.partitions, 2)) for each in plan.topics),
    )


def _moves_no_more(found: list[Anomaly]) -> bool:
    return any(each.rule == "did-not-recover" and each.text.startswith("a move of") for each in found)
