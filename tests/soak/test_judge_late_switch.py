"""Fault 3 of the reading of control and router, planted again: a late switch has no barrier, and the judge finds it.

The home broker stands still behind HELD in each move. Most runs need one seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from judge.plan import Dose
from tests.judge.planted_mesh import found

RUNS = 6


@pytest.mark.timeout(RUNS * 400)
def test_a_late_switch_without_a_barrier_is_found(kafka_jars: None, tmp_path: Path) -> None:
    dose = Dose(only="^freeze kafka-c1-1 behind HELD$", stalls=1.0, edits=0.0)
    rules: set[str] = set()
    for seed in range(1, RUNS + 1):
        rules |= {each.rule for each in found("3", tmp_path, dose, slow="gateway-2 to routers", seed=seed)}
        if {"wrong-cluster", "two-writers", "misrouted"} & rules:
            return
    pytest.fail(f"not in {RUNS} runs: {rules or 'nothing'} was found")
