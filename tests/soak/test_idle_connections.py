"""A gateway holds 10,000 clients that are connected and idle, with and without TLS, in less than 1 GB."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from mesh.routing import RoutingTable, UpstreamCluster
from services.gateway.downstream import last_table
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until
from tests.integration.router.parts import ServiceProcess

CONNECTIONS = 10_000
MOST_BYTES = 1_000_000_000
AT_ONCE = 8
ANSWER_S = 120.0
API_VERSIONS = bytes.fromhex("0000000a00120000000000010000")
"""Version 0, without a client.id."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "tls")


@pytest.fixture(params=["PLAINTEXT", "SSL"])
def address(
    request: pytest.FixtureRequest, kafka_c1: KafkaCluster, authority: Authority, tmp_path: Path
) -> Iterator[tuple[int, ServiceProcess, str]]:
    signed, port = authority.sign("gateway"), free_block(2)
    state = tmp_path / "state"
    last_table.save(state, RoutingTable(1, [UpstreamCluster("c1", (kafka_c1.bootstrap,), 1, home=True)]))
    settings = {"LISTEN": f"{request.param}://127.0.0.1:{port}", "STATE_DIR": str(state)}
    if request.param == "SSL":
        settings |= {"TLS_CERTIFICATE": str(signed.certificate), "TLS_KEY": str(signed.key)}
    gateway = ServiceProcess("gateway", port, tmp_path / "gateway.log", settings)
    gateway.start()
    try:
        wait_until(lambda: gateway.ready() == "ready", "the gateway is ready")
        yield port, gateway, request.param
    finally:
        gateway.stop()


def connected(port: int, context: ssl.SSLContext | None, _: int) -> socket.socket:
    """A client that has had an answer, and goes silent."""
    client = socket.create_connection(("127.0.0.1", port), ANSWER_S)
    if context is not None:
        client = context.wrap_socket(client, server_hostname="127.0.0.1")
    client.sendall(API_VERSIONS)
    size = int.from_bytes(client.recv(4), "big")
    while size > 0:
        size -= len(client.recv(size))
    return client


def test_ten_thousand_idle_clients_take_less_than_a_gigabyte(
    address: tuple[int, ServiceProcess, str], authority: Authority
) -> None:
    port, gateway, security = address
    context = ssl.create_default_context(cafile=str(authority.certificate)) if security == "SSL" else None
    before = psutil.Process(gateway.pid).memory_info().rss
    with ExitStack() as clients, ThreadPoolExecutor(AT_ONCE) as threads:
        for client in threads.map(partial(connected, port, context), range(CONNECTIONS)):
            clients.enter_context(client)
        wait_until(lambda: gateway.metric("client_connections ") == CONNECTIONS, "all are connected", ANSWER_S)
        used = psutil.Process(gateway.pid).memory_info().rss
    print(f"{security}: {used / 1e6:.0f} MB with {CONNECTIONS} idle clients, {before / 1e6:.0f} MB without")
    assert used < MOST_BYTES
