"""Mended faults of control and router, planted again in a mesh: the judge finds them.

`make test` has a cheaper test for each: the first breaks `unit/mesh/test_event_log.py`, the second breaks
`unit/mesh/test_replicas.py` and `integration/control/test_rollout.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from judge.plan import Dose
from tests.judge.planted_mesh import found, moves_no_more


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
