"""`kafka-mesh up` as a newcomer meets it: one command, a table, four lines to paste, Ctrl-C."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from local.layout import CERTIFICATES_FOLDER, STATE_FOLDER
from local.owners import owner_name
from local.services import PORTS, SERVICES
from mesh.rpc.channels import open_blocking_channel
from mesh.rpc.tls import RpcTls
from meshctl.failures import as_call
from tests.fixtures.meshes import BIN, Mesh, running_mesh
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

LINE_TIMEOUT_S = 60.0
PRINTED_S = CALL_S = END_S = 60.0


@pytest.mark.timeout(400)
def test_from_nothing_to_the_pasted_lines(kafka_jars: None, tmp_path: Path) -> None:
    with running_mesh(tmp_path / STATE_FOLDER) as mesh:
        wait_until(lambda: "Ctrl-C stops all" in output(mesh), "all is printed", PRINTED_S)
        printed = output(mesh)
        for service in SERVICES:
            if not service.is_step and service.name != "pipeline":
                assert re.search(rf"{re.escape(service.what)}.*ready", printed), service.name
        produce, consume, change, why = lines_to_paste(printed)

        paste(produce, tmp_path)
        assert paste(consume, tmp_path).strip() == "hello"
        assert "c1" in paste(why, tmp_path)
        paste(change, tmp_path)
        assert "c2" in paste(why, tmp_path)

        pids = [row["pid"] for row in mesh.processes().values() if row["pid"]]
        assert mesh.end(signal.SIGINT) == 0
        assert not [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_mesh_whose_state_an_earlier_version_left_starts_again_with_its_rules(
    kafka_jars: None, tmp_path: Path
) -> None:
    state = tmp_path / STATE_FOLDER
    with running_mesh(state) as mesh:
        mesh.meshctl("rule", "set", "--accept-skip", "--prefix", "apples", "--to", "c2", "--reason", "a test")
    shutil.rmtree(state / CERTIFICATES_FOLDER)  # as an earlier version leaves its state
    with running_mesh(state) as mesh:
        assert "c2" in mesh.meshctl("explain", "apples").stdout


@pytest.mark.timeout(400)
def test_who_shows_no_certificate_is_refused_and_each_certificate_has_the_rights_of_its_role(mesh: Mesh) -> None:
    for server in (mesh.control, mesh.router):
        assert answer_of(server, None) is grpc.StatusCode.UNAVAILABLE
        assert answer_of(server, mesh.admin) is grpc.StatusCode.OK

    assert str(mesh.admin.folder) in output(mesh)
    assert mesh.meshctl("cluster", "list").returncode == 0  # without an option
    unknown = mesh.meshctl("--address", mesh.control, "status", check=False)  # an address of its own has no certificate
    assert unknown.returncode != 0
    assert "--tls-folder" in unknown.stderr

    viewer = mesh.certificate("viewer", "vera")
    assert mesh.meshctl("status", "--tls-folder", viewer).returncode == 0
    freeze = mesh.meshctl("freeze", "--reason", "a test", "--tls-folder", viewer, check=False)
    assert freeze.returncode != 0
    assert "needs the role operator; vera has viewer (by its certificate)" in freeze.stderr

    history = json.loads(mesh.meshctl("history", "-o", "json").stdout)
    actors = {entry["actor"] for entry in history["entries"]}
    assert actors == {owner_name(getpass.getuser())}


def answer_of(address: str, caller: RpcTls | None) -> grpc.StatusCode:
    with open_blocking_channel(address, caller) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
        except grpc.RpcError as error:
            return as_call(error).code()
        return grpc.StatusCode.OK


def output(mesh: Mesh) -> str:
    return mesh.output.read_text(encoding="utf-8")


def lines_to_paste(printed: str) -> list[str]:
    _, _, after = printed.partition("Paste into another terminal:")
    lines = [line.strip() for line in after.splitlines() if line.startswith("  ")]
    assert len(lines) == 4, printed
    return lines


def paste(line: str, folder: Path) -> str:
    run = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=LINE_TIMEOUT_S, check=False
    )
    assert run.returncode == 0, f"{line}\n{run.stdout}{run.stderr}"
    return run.stdout


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    base = free_block(len(PORTS))
    with socket.socket() as held:
        held.bind(("127.0.0.1", base))
        held.listen()
        run = subprocess.run(
            [BIN / "kafka-mesh", "up", "--state-dir", str(tmp_path / "state"), "--port-base", str(base)],
            capture_output=True,
            text=True,
            timeout=LINE_TIMEOUT_S,
            check=False,
        )

    assert run.returncode == 3
    assert f"port {base} (gateway) is held by" in run.stdout
    assert Path(sys.executable).name[:6] in run.stdout
    assert not (tmp_path / "state" / "log").exists()


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_crashed_service_is_back_and_a_killed_supervisor_leaves_nothing(
    mesh_factory: Callable[..., Mesh],
) -> None:
    mesh = mesh_factory()

    mesh.crash("router")
    assert "hello" in paste_round(mesh)

    assert mesh.process is not None
    processes = [psutil.Process(row["pid"]) for row in mesh.processes().values() if row["pid"]]
    mesh.process.kill()
    mesh.process.wait(END_S)
    _, alive = psutil.wait_procs(processes, timeout=END_S)
    assert not alive


def paste_round(mesh: Mesh) -> str:
    mesh.kafka_mesh("produce", "apples", stdin="hello\n")
    return mesh.kafka_mesh("consume", "apples", "--count", "1").stdout


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_real_clusters_and_a_real_database_are_used(
    kafka_jars: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """They are this test's own: a mesh writes its events to its home cluster."""
    from tests.fixtures.clusters import KafkaCluster

    database = request.getfixturevalue("postgres")()
    west, east = KafkaCluster("west", tmp_path / "west"), KafkaCluster("east", tmp_path / "east")
    try:
        west.start()
        east.start()
        clusters = ["--cluster", f"west={west.bootstrap}", "--cluster", f"east={east.bootstrap}"]
        options = (*clusters, "--database", database)
        with running_mesh(tmp_path / STATE_FOLDER, *options) as mesh:
            assert not {"postgres", "kafka-c1", "kafka-c2"} & set(mesh.processes())
            assert "hello" in paste_round(mesh)
            names = {row["name"].rpartition("/")[2] for row in clusters_of(mesh)}
            assert names == {"west", "east"}
        east.stop()
        with running_mesh(tmp_path / STATE_FOLDER, *options) as mesh:  # it is known, and is not the home
            assert "cluster east does not answer" in mesh.output.read_text(encoding="utf-8")
            assert "hello" in paste_round(mesh)
    finally:
        west.stop()
        east.stop()


def clusters_of(mesh: Mesh) -> list[dict[str, str]]:
    listed = json.loads(mesh.meshctl("cluster", "list", "-o", "json").stdout)
    rows: list[dict[str, str]] = listed["clusters"] if isinstance(listed, dict) else listed
    return rows
