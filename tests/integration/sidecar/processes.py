"""A sidecar as a process of its own, as an operator starts it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.sidecar.world import NOWHERE, WITHIN_SECONDS

ROOT = Path(__file__).parents[3]


@contextmanager
def process(
    port: int, *arguments: str, settings: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """`python -m services.sidecar`, its management on the port after `port`; if not said otherwise, without control."""
    said = {
        "metrics_listen": f"127.0.0.1:{port + 1}",
        "control_addresses": NOWHERE,
        "state_dir": "",
        "restore_timeout_ms": "200",
        **settings,
    }
    own = {f"KAFKA_MESH_SIDECAR_{name.upper()}": value for name, value in said.items()}
    running = subprocess.Popen(
        [sys.executable, "-m", "services.sidecar", *arguments],
        cwd=ROOT,
        env={**os.environ, **own, **(environment or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate(timeout=WITHIN_SECONDS)
