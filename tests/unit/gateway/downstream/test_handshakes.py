"""Handshakes of TLS that never end: the gateway cuts them, counts them, and serves others meanwhile."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from mesh.listeners import Security
from mesh.server_certificate import TlsFiles
from services.gateway.downstream import listening
from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.listening import AskedNode, Ports
from services.gateway.downstream.server_tls import ServerTls
from services.gateway.listeners import Listener
from services.gateway.requests.nodes import Advertised
from tests.fixtures.certificates import Authority
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import WITHIN_S

TIMEOUT_S = 0.3


class Greeter(asyncio.BufferedProtocol):
    """A client that is let in gets a word."""

    def __init__(self, _: Entrance, asked_node: AskedNode) -> None:
        self._asked_node = asked_node

    def connection_made(self, transport: Any) -> None:
        self._asked_node(transport)
        transport.write(b"hi")

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(64)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def port(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(listening, "HANDSHAKE_TIMEOUT_S", TIMEOUT_S)
    signed, port = authority.sign("gateway"), free_block(1)
    listener = Listener("127.0.0.1", port, Security.SSL, Advertised("127.0.0.1", port))
    ports = Ports()
    ports.bind(Entrance(listener, tls=ServerTls(TlsFiles(signed.certificate, signed.key))))
    await ports.serve(Greeter)
    yield port
    ports.close()


def counted() -> list[float]:
    """Accepted, begun and done, so far."""
    name = "kafka_mesh_gateway_tls_handshakes_total"
    return [REGISTRY.get_sample_value(name, {"stage": stage}) or 0 for stage in ("accepted", "begun", "done")]


def hello() -> bytes:
    """The first message of a client."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(("share", "begins"), [(0.0, 0), (0.5, 0), (1.0, 1)], ids=["nothing", "half a hello", "hello"])
async def test_a_handshake_that_does_not_end_is_cut(share: float, begins: int, port: int, authority: Authority) -> None:
    before, said = counted(), hello()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = asyncio.get_running_loop().time()
    writer.write(said[: round(share * len(said))])
    async with asyncio.timeout(WITHIN_S):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
    assert asyncio.get_running_loop().time() - began >= TIMEOUT_S * 0.9
    writer.close()
    assert counted() == [before[0] + 1, before[1] + begins, before[2]]

    context = ssl.create_default_context(cafile=str(authority.certificate))
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
        assert await reader.readexactly(2) == b"hi"
    writer.close()
    assert counted() == [before[0] + 2, before[1] + begins + 1, before[2] + 1]
