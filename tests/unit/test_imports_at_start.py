"""A service starts without the libraries that only some of its work needs: their imports would lengthen each start."""

from __future__ import annotations

import subprocess
import sys

import pytest

HTTP_CLIENT = "httpx"
"""Fetches tokens from an issuer, for clusters that want such tokens."""
SKETCHES = "datasketches"
ARRAYS = "numpy"
"""Comes with the sketches of latencies."""
TABLES = "rich"
COLOURS = "pygments"
"""Comes with rich, which structlog loads where it finds it."""
FILES = "yaml"
AVRO = "fastavro"
START_TIMEOUT_S = 60.0


@pytest.mark.parametrize("service", ["control", "gateway", "router"])
def test_a_service_starts_without_libraries_that_few_installations_need(service: str) -> None:
    script = f"import sys, services.{service}.__main__; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=START_TIMEOUT_S
    )
    imported = set(run.stdout.split())
    assert f"services.{service}.__main__" in imported
    assert imported.isdisjoint({HTTP_CLIENT, SKETCHES, ARRAYS, COLOURS})
    assert service != "gateway" or imported.isdisjoint({FILES, AVRO})


def test_meshctl_starts_without_the_libraries_of_single_commands() -> None:
    script = "import sys, meshctl.cli; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=START_TIMEOUT_S
    )
    imported = set(run.stdout.split())
    assert "meshctl.cli" in imported
    assert imported.isdisjoint({HTTP_CLIENT, TABLES, FILES})
