"""The suites of the clients, as two tenants at the same time with the same names: each tenant is a cluster of its own.

Each test of a suite counts its records, its members, its groups and its topics: a record, a commit or a topic of the
other tenant would fail it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.running import Rules
from tests.integration.gateway.tenants import House, two_tenants

ROOT = Path(__file__).parents[3]
SUITES = ("test_records.py", "test_groups.py", "test_transactions.py", "test_admin.py")
CLIENTS = "java-4.4 or aiokafka or franz-go"
"""Clients of three languages, which share no code. `test_tenants.py` has the tools of Kafka."""
RUN_S = 900.0
LEAST = 20
"""Tests of one run that pass at least; a client skips those of abilities that it lacks."""


@pytest.fixture
def house(
    rules: Rules, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, start_gateway: StartGateway, tmp_path: Path
) -> Iterator[House]:
    with two_tenants(rules, kafka_c1, kafka_c2, start_gateway, tmp_path) as house:
        yield house


def started(house: House, user: str) -> subprocess.Popen[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MESH_TEST_")},
        "MESH_TEST_BOOTSTRAP": house.entrance(user),
        "MESH_TEST_NAMES": "the same",
    }
    command = (
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CLIENTS),
        *(f"--basetemp={house.folder / user}", *(f"tests/clients/{suite}" for suite in SUITES)),
    )
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_the_suites_of_clients_pass_as_two_tenants_with_the_same_names(house: House) -> None:
    runs = {user: started(house, user) for user in ("ann", "bob")}
    try:
        told = {user: run.communicate(timeout=RUN_S)[0] for user, run in runs.items()}
    finally:
        for run in runs.values():
            run.kill()
    for user, run in runs.items():
        assert run.returncode == 0, f"as {user}:\n{told[user][-5000:]}"
        (passed,) = re.findall(r"(\d+) passed", told[user])
        assert int(passed) >= LEAST, told[user]
