"""What readiness rests on."""

import asyncio
from collections.abc import AsyncIterator

import orjson
import pytest

from services.sidecar.admin.health import BackendProbe
from services.sidecar.telemetry.client_statistics import broker_fault, client_reports


class Backend:
    """Answers each connection once, then closes it."""

    def __init__(self) -> None:
        self.asked = 0
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 -\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    backend = Backend()
    async with await asyncio.start_server(backend.answer, "127.0.0.1", 0) as server:
        backend.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/health"
        yield backend


async def test_however_many_ask_the_backend_is_asked_once_a_second(backend: Backend) -> None:
    now = 100.0
    probe = BackendProbe(backend.url, 10.0, lambda: now)
    try:
        answers = await asyncio.gather(*(probe.fault() for _ in range(20)))
        assert set(answers) == {"the backend's health answers 500"}
        assert backend.asked == 1
        now += 1
        await probe.fault()
        assert backend.asked == 2
    finally:
        await probe.close()


async def test_no_proxy_of_the_environment_stands_between_the_sidecar_and_its_backend(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    probe = BackendProbe(backend.url, 10.0)
    try:
        assert await probe.fault() == "the backend's health answers 500"
    finally:
        await probe.close()


def test_a_client_that_has_lost_all_brokers_needs_a_restart() -> None:
    reports = client_reports("producer")
    brokers = {"b1:9092/1": {"source": "learned"}, "GroupCoordinator": {"source": "logical"}}
    without = {"GroupCoordinator": {"source": "logical"}}
    for known, wanted in (
        (brokers, None),
        (without, None),  # it may begin again at its bootstrap servers
        (without, "these Kafka clients have lost all brokers for good: producer; restart this sidecar"),
        (brokers, None),
    ):
        reports(orjson.dumps({"brokers": known}).decode())
        assert broker_fault() == wanted
