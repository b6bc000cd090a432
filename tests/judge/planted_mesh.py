"""A small mesh with a mended fault planted again, and what the judge finds of it within a minute."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from judge.anomalies import Anomaly, judged
from judge.faults.cable import State
from judge.plan import Client, Dose, Plan, Process, Role, planned
from judge.report import Report
from judge.run import Run
from judge.systems.mesh import embedded_mesh
from judge.systems.shape import Shape

PLANTS = Path(__file__).parent / "planted_back"
PORTS = os.environ.get("MESH_TEST_PORTS", "20000-32000")
SMALL = Shape(gateways=2, workers=1, routers=2, controls=2, brokers=1)
RECOVERY_S = 25.0
"""A mesh that a planted fault holds up never recovers."""
MOST_S = 60.0
SLOW_S = 0.7
WRITERS = 8


def found(
    planted: str, folder: Path, dose: Dose, slow: str = "", longest_s: float = 8.0, seed: int = 1
) -> list[Anomaly]:
    """What the judge finds within a minute; the links with `slow` in their names are slow all the time."""
    settings = {"PYTHONPATH": str(PLANTS), "JUDGE_PLANTED": planted, "KAFKA_MESH_CONTROL_HOLD_MS": "2500"}
    with embedded_mesh(folder, SMALL, calm=False, moves=True, ports=PORTS, settings=settings) as system:
        for name, cables in system.links.items():
            for cable in cables if slow and slow in name else ():
                cable.delay_s = SLOW_S
                cable.become(State.SLOW)
        system.faults = [replace(each, longest_s=longest_s) for each in system.faults]
        seconds = MOST_S - RECOVERY_S
        run = Run(_small_plan(seed), system, seconds, shake=False, dose=dose, recovery_s=RECOVERY_S, say=print)
        history = run.judged_history()
    report = Report(history, tuple(judged(history)))
    report.write(Path("build/judge-planted") / planted)
    print(report.failures(), report.summary(), sep="\n")
    return report.bad


def _small_plan(seed: int) -> Plan:
    """Of few partitions, where writers meet, and of many writers: where one cluster stands still, some go on."""
    plan = planned(seed, clients=[Client.OWN, Client.LIBRDKAFKA], moves=True, late=False)
    writers = tuple(Process(f"writer-{number}-own", Role.WRITER, Client.OWN) for number in range(WRITERS))
    return replace(
        plan,
        processes=(*plan.processes, *writers),
        topics=tuple(replace(each, partitions=min(each.partitions, 2)) for each in plan.topics),
    )


def moves_no_more(anomalies: list[Anomaly]) -> bool:
    return any(each.rule == "did-not-recover" and each.text.startswith("a move of") for each in anomalies)
