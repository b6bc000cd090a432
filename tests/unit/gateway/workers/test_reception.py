"""Clients come in at the ports of the settings, and are met by a worker: here one of this process."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from mesh.listeners import Security
from mesh.server_certificate import TlsFiles
from services.gateway.downstream.entrance import Entrance
from services.gateway.downstream.handed import Handed
from services.gateway.downstream.listening import AskedNode
from services.gateway.downstream.server_tls import ServerTls
from services.gateway.listeners import Listener
from services.gateway.requests.nodes import Advertised, NodePorts
from services.gateway.workers.balance import Load
from services.gateway.workers.reception import Reception
from tests.fixtures.certificates import Authority
from tests.fixtures.waiting import WITHIN_S, until

OUTSIDE = Advertised("outside", 2, NodePorts(named=((101, 0),)))
PLAIN = Listener("127.0.0.1", 0, Security.PLAINTEXT, Advertised("inside", 1))


class Greeter(asyncio.BufferedProtocol):
    """Says who met the client, what the client was told, and which node it asked for."""

    def __init__(self, name: str, entrance: Entrance, asked_node: AskedNode) -> None:
        self._name, self._advertised, self._asked_node = name, entrance.of.advertised, asked_node

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        delay = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        told = f"{self._name} {self._advertised.host} {self._asked_node(transport)} {'no delay' if delay else 'delay'}"
        transport.write(told.encode())

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(64))


class House:
    """A reception, and workers behind doors."""

    def __init__(self, *listeners: Listener) -> None:
        self.doors: dict[Load, socket.socket] = {}
        self.reception = Reception(listeners, self._all)
        self._listeners = listeners
        self._handed: list[Handed] = []

    def _all(self) -> Mapping[Load, socket.socket]:
        return self.doors

    async def worker(self, name: str, tls: ServerTls | None = None, *, takes: bool = True) -> Handed:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        handed = Handed(theirs)
        for each in self._listeners:
            handed.bind(Entrance(each, tls=tls if each.tls else None))
        if takes:
            await handed.serve(lambda entrance, asked: Greeter(name, entrance, asked))
        self.doors[Load(len(self.doors))] = ours
        self._handed.append(handed)
        return handed

    def close(self) -> None:
        self.reception.close()
        for handed in self._handed:
            handed.close()
        for door in self.doors.values():
            door.close()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House(PLAIN)
    yield house
    house.close()


async def greeting(port: int, tls: ssl.SSLContext | None = None, host: str | None = None) -> str:
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)
        try:
            writer.write(b"anything\r\n")
            return (await reader.read(200)).decode()
        finally:
            writer.close()


async def test_clients_are_shared_out(house: House) -> None:
    for name in ("one", "other"):
        await house.worker(name)
    house.reception.open()
    (port,) = house.reception.ports
    told = [await greeting(port) for _ in range(8)]
    assert sorted(told) == ["one inside None no delay"] * 4 + ["other inside None no delay"] * 4


async def test_a_port_of_a_node_tells_the_node() -> None:
    several = House(PLAIN, Listener("127.0.0.1", 0, Security.PLAINTEXT, OUTSIDE, name="outside"))
    try:
        await several.worker("w")
        several.reception.open()
        told = [await greeting(port) for port in several.reception.ports]
        assert told == ["w inside None no delay", "w outside None no delay", "w outside 101 no delay"]
    finally:
        several.close()


async def test_tls_is_the_workers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("gateway", host="DNS:101.kafka.example.com")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.certificate)
    secured = House(Listener("127.0.0.1", 0, Security.SSL, Advertised("{node}.kafka.example.com", 9093)))
    try:
        handed = await secured.worker("w", ServerTls(TlsFiles(signed.certificate, signed.key)))
        secured.reception.open()
        (port,) = secured.reception.ports
        told = await greeting(port, context, "101.kafka.example.com")
        assert told == "w {node}.kafka.example.com 101 no delay"
        with suppress(ConnectionError):
            assert await greeting(port) == ""  # who speaks no TLS is sent away
        await until(lambda: handed.meeting == 0, "no handshake is left")
        assert handed.taken == 2
    finally:
        secured.close()


async def test_who_comes_to_a_worker_that_has_ended_is_met_by_another(house: House) -> None:
    gone = await house.worker("gone")
    await house.worker("other")
    gone.close()
    house.reception.open()
    (port,) = house.reception.ports
    assert {await greeting(port) for _ in range(4)} == {"other inside None no delay"}


async def test_without_a_worker_clients_wait(house: House) -> None:
    house.reception.open()
    (port,) = house.reception.ports
    waiting = asyncio.gather(*(greeting(port) for _ in range(5)))
    await until(lambda: house.reception.is_full, "nobody could take a client")
    await house.worker("late")
    assert await waiting == ["late inside None no delay"] * 5


async def test_a_worker_that_takes_nothing_fills_up_to_a_bound(house: House) -> None:
    stuck = await house.worker("stuck", takes=False)
    house.reception.open()
    (port,) = house.reception.ports
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(600)]
    try:
        await until(lambda: house.reception.is_full, "its door is full")
        assert stuck.taken == 0
        await house.worker("other")
        load = list(house.doors)[1]
        await until(lambda: sum(each.handed for each in house.doors) == len(clients), "the others are met elsewhere")
        assert load.handed > 0
    finally:
        for client in clients:
            client.close()


async def test_listeners_are_opened_and_closed_as_workers_want(house: House) -> None:
    handed = await house.worker("w")
    house.reception.open()
    (before,) = house.reception.ports
    new = replace(PLAIN, advertised=Advertised("new", 3), name="new")
    handed.bind(Entrance(new))
    house.reception.follow(7, (("new", "127.0.0.1", 0),))
    (port,) = house.reception.ports
    assert await greeting(port) == "w new None no delay"
    with pytest.raises(ConnectionRefusedError):
        await greeting(before)
    house.reception.follow(8, (("new", "127.0.0.1", 0),))
    house.reception.follow(7, (("", "127.0.0.1", 0),))
    assert house.reception.ports == [port], "a worker that is behind decides nothing"


async def test_a_client_of_a_listener_that_the_worker_does_not_have_is_sent_away(house: House) -> None:
    handed = await house.worker("w")
    handed.dismiss("")
    house.reception.open()
    (port,) = house.reception.ports
    with suppress(ConnectionError):
        assert await greeting(port) == ""
    await until(lambda: handed.taken == 1, "it came to the worker")


async def test_a_port_that_is_taken_is_a_fault_until_it_is_free(house: House) -> None:
    house.reception.open()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        house.reception.follow(1, (("", "127.0.0.1", 0), ("new", "127.0.0.1", port)))
        assert "Address already in use" in house.reception.faults["new"]
    house.reception.try_again()
    assert not house.reception.faults
    assert port in house.reception.ports
