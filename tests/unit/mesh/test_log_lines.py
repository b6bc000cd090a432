"""Log lines for people and for programs: neither shows the values of variables, which may be secrets."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import structlog
from mesh.telemetry import configure_logging

configure_logging("test", json={json})
try:
    password = "never " + "in a log"
    raise RuntimeError("a fault")
except RuntimeError:
    structlog.get_logger("test").exception("it failed")
"""


@pytest.mark.parametrize("json", [True, False], ids=["programs", "people"])
def test_a_fault_is_logged_without_the_values_of_variables(json: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(json=json)]
    logged = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stderr
    assert "RuntimeError: a fault" in logged
    assert "never in a log" not in logged
