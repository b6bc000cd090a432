"""The judge drives a mesh of its own with all faults and moves, and finds nothing that Kafka rules out.

`MESH_JUDGE_S` bounds its work; `MESH_SEED` repeats the choices of an earlier run. The report stands in `build/judge`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

SECONDS = float(os.environ.get("MESH_JUDGE_S", "1200"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**31)))
AROUND_S = 900.0
"""To start the mesh, to heal it, and to read all logs to their end."""


@pytest.mark.timeout(SECONDS + AROUND_S + 60)
def test_no_client_of_a_mesh_sees_what_kafka_rules_out(kafka_jars: None) -> None:
    command = [sys.executable, "-m", "local.cli", "judge", "--mesh", f"--seconds={SECONDS:g}", f"--seed={SEED}"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + AROUND_S, check=False)
    print(run.stdout)
    assert run.returncode == 0, run.stdout + run.stderr
