"""A listener that an operator adds to a running mesh: gateways open it, say so, and have it again without control."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from local.layout import STATE_FOLDER
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

ANSWER_S = 60


@pytest.fixture(scope="module")
def own_mesh(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("listeners") / STATE_FOLDER, formatted=True) as mesh:
        yield mesh


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_listener_is_added_shown_kept_without_control_and_closed(own_mesh: Mesh) -> None:
    port = free_block(1)
    address = f"127.0.0.1:{port}"
    own_mesh.meshctl("listener", "set", "beside", "--security", "PLAINTEXT", "--port", str(port))

    def shown() -> str:
        return own_mesh.meshctl("listener", "explain", "beside").stdout

    wait_until(lambda: f"PLAINTEXT://{address}, advertised {address}, decided" in shown(), "it is shown", ANSWER_S)
    assert "NOT OPEN" not in shown()
    assert "from settings" in own_mesh.meshctl("listener", "list").stdout
    Producer({"bootstrap.servers": address}).list_topics(timeout=ANSWER_S)

    for part in ("router", "control"):
        own_mesh.kill(part)
    own_mesh.crash("gateway")
    Producer({"bootstrap.servers": address}).list_topics(timeout=ANSWER_S)

    for part in ("control", "router"):
        own_mesh.start(part)
    own_mesh.meshctl("listener", "close", "beside", "--reason", "no longer needed")
    wait_until(lambda: shown() == "beside: closed\n", "the gateway has it no more", ANSWER_S)
    wait_until(lambda: is_refused(port), "nobody can connect", ANSWER_S)
    assert "no longer needed" in own_mesh.meshctl("history", "--listeners").stdout
