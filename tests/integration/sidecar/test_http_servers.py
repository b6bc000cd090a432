"""How callers get in: bounds on what they may take, and TLS."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh import server_certificate
from services.sidecar.telemetry import metrics
from tests.fixtures.certificates import Authority, Signed
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import WITHIN_SECONDS, Kafka, SidecarWorld, started, value_of

SOON_MS = 200
HEAD_MS = 3_000
"""Long enough for a caller on a busy machine who does not hesitate."""


@pytest.fixture(scope="module")
def narrow(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    """Has little room."""
    with started(
        kafka_c1.bootstrap,
        max_open_reads=1,
        max_header_bytes=2_000,
        max_connections=5,
        key_format="string",
        value_format="string",
    ) as world:
        yield world


@pytest.fixture(scope="module")
def hasty(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    """Has no patience."""
    with started(kafka_c1.bootstrap, max_head_ms=HEAD_MS, max_body_ms=SOON_MS) as world:
        yield world


def exchange(world: SidecarWorld, sent: bytes) -> str:
    """What comes back for these bytes until the sidecar hangs up."""
    with socket.create_connection(("127.0.0.1", world.sidecar.port), WITHIN_SECONDS) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def head_of(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def refusals(reason: str) -> float:
    value: float = metrics.refused_calls.labels(reason)._value.get()
    return value


def test_a_body_that_does_not_come(hasty: SidecarWorld) -> None:
    before = refusals("slow request")
    head = head_of("POST", "/producers/orders", "Content-Type: application/json", "Content-Length: 100")
    told = exchange(hasty, head + b'{"records"')
    assert told.startswith("HTTP/1.1 408 Request Timeout")
    assert "ERR12941" in told
    assert "max_body_ms" in told
    assert refusals("slow request") == before + 1


def test_a_head_that_does_not_come(hasty: SidecarWorld) -> None:
    told = exchange(hasty, b"POST /producers/orders HTTP/1.1\r\nHost: si")
    assert told.startswith("HTTP/1.1 408 Request Timeout")
    assert "max_head_ms" in told


def test_a_caller_who_says_nothing(hasty: SidecarWorld) -> None:
    assert exchange(hasty, b"").startswith("HTTP/1.1 408 Request Timeout")


def test_the_next_head_on_a_connection_has_its_time_too(hasty: SidecarWorld) -> None:
    with socket.create_connection(("127.0.0.1", hasty.sidecar.port), WITHIN_SECONDS) as connection:
        connection.sendall(head_of("GET", "/health/liveness"))
        first = b""
        while not first.endswith(b"OK"):
            first += connection.recv(65536)
        connection.sendall(b"GET /health/liv")
        told = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert told.startswith("HTTP/1.1 408 Request Timeout")


@pytest.mark.parametrize("lacking", [0, 4])
def test_a_head_that_is_too_large(narrow: SidecarWorld, lacking: int) -> None:
    head = head_of("DELETE", "/consumers/g/instances/c", f"X-Much: {'x' * 3_000}")
    told = exchange(narrow, head[: len(head) - lacking])
    assert told.startswith("HTTP/1.1 431 Request Header Fields Too Large")
    assert "ERR12945" in told
    assert "max_header_bytes" in told
    assert "connection: close" in told.lower()


def test_reads_that_wait_keep_nobody_from_producing(
    narrow: SidecarWorld, kafka: Kafka, orders: str, group: str
) -> None:
    one, other = narrow.create(group, "c1"), narrow.create(f"{group}-other", "c1")
    for instance in (one, other):
        instance.subscribe(orders)
    before = refusals("too many open requests")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(one.get)
        wait_until(lambda: metrics.open_calls.labels("read")._value.get() == 1, "the read waits")
        refused = other.get()
        assert (refused.status_code, refused.json()["code"]) == (429, "ERR12943")
        assert refused.headers["Retry-After"]
        assert "max_open_reads" in refused.json()["description"]
        assert narrow.produce(orders, {"value": "v"}).status_code == 200
        assert [record["value"] for record in waiting.result().json()] == ["v"]
    assert refusals("too many open requests") == before + 1
    assert [record["value"] for record in other.read()] == ["v"]


def test_an_answer_that_takes_too_long(kafka: Kafka, topic: str) -> None:
    hurry = {"max_call_ms": SOON_MS, "max_read_ms": 1, "stream_heartbeat_ms": 1, "stream_idle_timeout_ms": 1}
    with started(kafka.bootstrap, unknown_topic_timeout_ms=60_000, **hurry) as hasty:
        answer = hasty.produce(topic, {"value": "v"}, valueFormat="string")
    assert (answer.status_code, answer.json()["code"]) == (503, "ERR12942")
    assert "may still be done" in answer.json()["description"]


def test_more_connections_than_there_is_room_for(narrow: SidecarWorld) -> None:
    def answer(http: httpx.Client) -> httpx.Response:
        return http.get("/health/liveness")

    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(httpx.Client(base_url=narrow.http.base_url, timeout=WITHIN_SECONDS)) for _ in range(6)
        ]
        answers = [answer(http) for http in clients]
        assert answers[0].status_code == 200
        assert (answers[-1].status_code, answers[-1].json()["code"]) == (503, "ERR12944")
        assert (answers[-1].headers["Connection"], answers[-1].headers["Retry-After"]) == ("close", "1")
        assert answer(clients[0]).status_code == 200  # who is in, stays in
    with httpx.Client(base_url=narrow.http.base_url, timeout=WITHIN_SECONDS) as http:
        wait_until(lambda: answer(http).status_code == 200, "there is room again")


class TestTls:
    """HTTPS with certificates of an authority, and with one of its own."""

    @pytest.fixture
    def authority(self, tmp_path: Path) -> Authority:
        return Authority(tmp_path / "authority")

    @pytest.fixture
    def server(self, authority: Authority) -> Signed:
        return authority.sign("server")

    def name_shown(self, world: SidecarWorld, trusted: ssl.SSLContext) -> str:
        """The name in the certificate that a new connection sees."""
        with (
            socket.create_connection(("127.0.0.1", world.sidecar.port), WITHIN_SECONDS) as connection,
            trusted.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
        ):
            certificate: Any = secured.getpeercert()
            return str(certificate["subject"][0][0][1])

    def test_certificates_that_change_count_without_a_restart(
        self, kafka: Kafka, authority: Authority, server: Signed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server_certificate, "LOOK_S", 0.02)
        trusted = ssl.create_default_context(cafile=str(authority.certificate))
        with started(kafka.bootstrap, tls_certificate=server.certificate, tls_key=server.key) as world:
            address = f"https://127.0.0.1:{world.sidecar.port}"
            assert httpx.get(f"{address}/health/readiness", verify=trusted, timeout=WITHIN_SECONDS).text == "OK"
            renewed = authority.sign("renewed")
            server.key.write_bytes(renewed.key.read_bytes())
            server.certificate.write_bytes(renewed.certificate.read_bytes())
            wait_until(lambda: self.name_shown(world, trusted) == "renewed", "the new certificate is shown")

    def test_without_a_certificate_it_makes_one(self, kafka: Kafka, tmp_path: Path) -> None:
        with started(kafka.bootstrap, tls=True, state_dir=tmp_path / "state") as world:
            trusted = ssl.create_default_context(cafile=str(tmp_path / "state" / "listener-certificate.pem"))
            address = f"https://localhost:{world.sidecar.port}/health/readiness"
            answer = httpx.get(address, verify=trusted, timeout=WITHIN_SECONDS)
            assert answer.text == "OK"
            with pytest.raises(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{world.sidecar.port}/health/readiness")

    @pytest.mark.parametrize("is_optional", [False, True])
    def test_callers_show_certificates(
        self, kafka: Kafka, authority: Authority, server: Signed, tmp_path: Path, is_optional: bool
    ) -> None:
        known, stranger = authority.sign("client"), Authority(tmp_path / "elsewhere").sign("client")
        with started(
            kafka.bootstrap,
            tls_certificate=server.certificate,
            tls_key=server.key,
            tls_client_ca=authority.certificate,
            tls_client_optional=is_optional,
        ) as world:

            def health(client: Signed | None) -> str:
                trusted = ssl.create_default_context(cafile=str(authority.certificate))
                if client is not None:
                    trusted.load_cert_chain(client.certificate, client.key)
                address = f"https://127.0.0.1:{world.sidecar.port}/health/liveness"
                try:
                    return httpx.get(address, verify=trusted, timeout=WITHIN_SECONDS).text
                except httpx.TransportError:
                    return "not let in"

            assert [health(client) for client in (known, stranger, None)] == [
                "OK", "not let in", "OK" if is_optional else "not let in"
            ]  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "way_in"),
    [
        ({"Host": "attacker.example:8084"}, "127.0.0.1 or localhost"),
        ({"Sec-Fetch-Site": "cross-site"}, "another origin"),
        ({"Origin": "http://attacker.example"}, "attacker.example"),
        ({"Origin": "null"}, "null"),
    ],
)
def test_a_page_of_another_origin_gets_nothing_from_a_sidecar_without_tokens(
    narrow: SidecarWorld, headers: dict[str, str], way_in: str
) -> None:
    before = refusals("another origin")
    for path in ("/consumers/deadLetter/active", "/adm/server/info"):
        answer = narrow.http.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "ERR12946")
        assert way_in in answer.json()["description"]
    assert refusals("another origin") == before + 2


def test_a_page_that_the_sidecar_has_served_may_call_it(narrow: SidecarWorld) -> None:
    own = f"http://localhost:{narrow.sidecar.port}"
    headers = {"Host": own.removeprefix("http://"), "Origin": own, "Sec-Fetch-Site": "same-origin"}
    assert narrow.http.get("/adm/server/info", headers=headers).status_code != 403


def test_bodies_that_are_too_large_together_are_turned_away_before_they_are_read(kafka: Kafka) -> None:
    with started(kafka.bootstrap, max_open_body_bytes=1_000_000) as world:
        head = head_of("POST", "/producers/orders", "Content-Type: application/json", "Content-Length: 900000")
        with socket.create_connection(("127.0.0.1", world.sidecar.port), WITHIN_SECONDS) as first:
            first.sendall(head)
            wait_until(lambda: value_of(metrics.open_body_bytes) == 900_000, "the first one is being served")
            with socket.create_connection(("127.0.0.1", world.sidecar.port), WITHIN_SECONDS) as second:
                second.sendall(head)
                told = http.client.HTTPResponse(second)
                told.begin()
                assert told.status == 429
                assert "max_open_body_bytes" in told.read().decode()
        wait_until(lambda: value_of(metrics.open_body_bytes) == 0, "the room is free again")
