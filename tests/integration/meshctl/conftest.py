"""A real control with a database and an events topic of its own, and `meshctl` as a program against it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local.leash import on_leash
from local.processes import log_tail
from local.readiness import HttpReady
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.forked_meshctl import forked_meshctl
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_unless

START_TIMEOUT_S = 100.0
Meshctl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def record_audit_topic() -> str:
    """Where sidecars tell what became of records."""
    return f"record-audit-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def control_database(postgres: PostgresServer) -> str:
    """The URL of control's database."""
    return postgres.migrated()


@pytest.fixture(scope="module")
def control(
    kafka_c1: KafkaCluster,
    control_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    record_audit_topic: str,
) -> Iterator[str]:
    """The address of a control whose home cluster is c1."""
    port = free_block(2)
    folder = tmp_path_factory.mktemp("control")
    log = folder / "control.log"
    environment = os.environ | {
        "KAFKA_MESH_CONTROL_DATABASE_URL": control_database,
        "KAFKA_MESH_CONTROL_HOME_BOOTSTRAP_SERVERS": kafka_c1.bootstrap,
        "KAFKA_MESH_CONTROL_EVENTS_TOPIC": f"mesh.events-{folder.name}-{port}",
        "KAFKA_MESH_CONTROL_RECORD_AUDIT_TOPICS": record_audit_topic,
        "KAFKA_MESH_CONTROL_LISTEN": f"127.0.0.1:{port}",
        "KAFKA_MESH_CONTROL_METRICS_LISTEN": f"127.0.0.1:{port + 1}",
    }
    kafka_mesh = [sys.executable, "-m", "local.cli"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            on_leash([*kafka_mesh, "control"]), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    ready = HttpReady(f"http://127.0.0.1:{port + 1}/ready")

    def obstacle() -> str | None:
        if process.poll() is not None:
            raise RuntimeError(f"control did not start:\n{log_tail(log)}")
        return ready.unmet()

    try:
        wait_unless(obstacle, "control is ready", START_TIMEOUT_S)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


@pytest.fixture
def meshctl(control: str, tmp_path: Path) -> Meshctl:
    """`meshctl("rule", "list")`, as a process of its own; `check=False` where an error is expected."""

    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = forked_meshctl().call(arguments, {"MESHCTL_ADDRESS": control, "USER": "ada"}, tmp_path)
        if check and done.returncode != 0:
            raise AssertionError(f"meshctl {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    return run
