"""TLS towards clients: files that change count for new connections, and the host that a client asks for is known."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh import server_certificate
from mesh.server_certificate import TlsFiles, TlsFilesError, load
from services.gateway.authentication.certificate_names import distinguished_name
from services.gateway.downstream.server_tls import ServerTls
from tests.fixtures.certificates import Authority, Signed
from tests.fixtures.waiting import WITHIN_S, until

HOST = "101.kafka.example.com"
NAMES = f"DNS:{HOST},IP:127.0.0.1"


@dataclass
class Stage:
    """A server that greets, and what its clients need."""

    authority: Authority
    files: TlsFiles
    tls: ServerTls
    port: int = 0
    hosts: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)

    async def name_shown(self, client: Signed | None = None, host: str = HOST) -> str:
        """The name in the certificate that a client is shown, when it has been let in."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.authority.certificate)
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        async with asyncio.timeout(WITHIN_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname=host)
            try:
                await reader.readexactly(2)  # in TLS 1.3 a refusal comes after the handshake
                subject = writer.get_extra_info("peercert")["subject"]
            finally:
                writer.close()
        return str(subject[0][0][1])

    def take(self, signed: Signed) -> None:
        """The operator renews the certificate."""
        self.files.certificate.write_bytes(signed.certificate.read_bytes())
        self.files.key.write_bytes(signed.key.read_bytes())


async def staged(
    folder: Path, *, client_ca: bool, client_crl: bool = False, beside: Path | None = None
) -> AsyncIterator[Stage]:
    """`client_crl`: with the list of the authority. `beside`: another authority of clients."""
    authority = Authority(folder)
    trusted, revoked = folder / "ca.pem" if client_ca else None, folder / "crl.pem" if client_crl else None
    if revoked is not None:
        revoked.write_bytes(authority.revoked())
    files = TlsFiles(folder / "server.pem", folder / "server.key", client_ca=trusted, client_crl=revoked)
    first = authority.sign("first", host=NAMES)
    files.certificate.write_bytes(first.certificate.read_bytes())
    files.key.write_bytes(first.key.read_bytes())
    authorities = [authority.certificate] if beside is None else [authority.certificate, beside]
    (folder / "ca.pem").write_bytes(b"".join(each.read_bytes() for each in authorities))
    stage = Stage(authority, files, ServerTls(files))

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stage.hosts.append(stage.tls.host_asked_for(writer.transport))
        stage.subjects.append(distinguished_name(writer.get_extra_info("peercert") or {}))
        writer.write(b"hi")

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=stage.tls.context)
    stage.port = server.sockets[0].getsockname()[1]
    following = asyncio.create_task(stage.tls.follow_files())
    yield stage
    following.cancel()
    server.close()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_certificate, "LOOK_S", 0.02)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async for each in staged(tmp_path, client_ca=False):
        yield each


@pytest.fixture
async def mutual_stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async for each in staged(tmp_path, client_ca=True):
        yield each


async def test_the_host_that_a_client_asks_for_is_known(stage: Stage) -> None:
    assert await stage.name_shown() == "first"
    assert await stage.name_shown(host="127.0.0.1") == "first"
    assert stage.hosts == [HOST, ""], "clients don't say addresses"


@pytest.mark.parametrize("host", [HOST, "127.0.0.1"])
async def test_a_renewed_certificate_is_shown_to_new_clients(stage: Stage, host: str) -> None:
    stage.take(stage.authority.sign("second", host=NAMES))

    async def is_shown() -> bool:
        return await stage.name_shown(host=host) == "second"

    await until(is_shown, "the renewed certificate is shown")


async def test_a_certificate_that_can_not_be_loaded_is_said_and_not_taken(stage: Stage) -> None:
    with capture_logs() as logs:
        stage.files.certificate.write_text("no PEM")
        await until(lambda: logs, "the log tells")
    assert f"tls_certificate {stage.files.certificate}" in logs[0]["reason"]
    assert await stage.name_shown() == "first"


async def test_without_a_certificate_of_its_own_a_client_is_not_let_in_and_counted(mutual_stage: Stage) -> None:
    begun, done = handshakes()
    assert not await lets_in(mutual_stage, None)
    assert handshakes() == (begun + 1, done)
    assert await lets_in(mutual_stage, mutual_stage.authority.sign("client"))
    assert handshakes() == (begun + 2, done + 1)


async def test_a_client_that_has_shown_a_certificate_is_known_by_its_subject(mutual_stage: Stage) -> None:
    assert await lets_in(mutual_stage, mutual_stage.authority.sign("client"))
    assert mutual_stage.subjects == ["CN=client"]


async def test_a_client_without_a_certificate_is_nobody(stage: Stage) -> None:
    await stage.name_shown()
    assert stage.subjects == [""]


def handshakes() -> tuple[float, float]:
    """Begun and done, so far."""
    name = "kafka_mesh_gateway_tls_handshakes_total"
    begun, done = (REGISTRY.get_sample_value(name, {"stage": stage}) for stage in ("begun", "done"))
    return begun or 0, done or 0


@pytest.mark.parametrize("host", [HOST, "127.0.0.1"])
async def test_other_authorities_of_clients_count_for_new_connections(
    mutual_stage: Stage, tmp_path: Path, host: str
) -> None:
    other = Authority(tmp_path / "other")
    old, new = mutual_stage.authority.sign("old"), other.sign("new")
    assert not await lets_in(mutual_stage, new, host)
    (tmp_path / "ca.pem").write_bytes(other.certificate.read_bytes())
    await until(lambda: lets_in(mutual_stage, new, host), "the new authority counts")
    assert not await lets_in(mutual_stage, old, host)


async def test_a_revoked_certificate_is_refused_as_soon_as_the_list_has_it(tmp_path: Path) -> None:
    async for stage in staged(tmp_path, client_ca=True, client_crl=True):
        kept, stolen = stage.authority.sign("kept"), stage.authority.sign("stolen")
        assert await lets_in(stage, stolen)
        (tmp_path / "crl.pem").write_bytes(stage.authority.revoked(stolen))

        async def is_refused(stolen: Signed = stolen, stage: Stage = stage) -> bool:
            return not await lets_in(stage, stolen)

        await until(is_refused, "the stolen certificate is refused")
        assert await lets_in(stage, kept)


@pytest.mark.parametrize("client_crl", [False, True])
async def test_a_certificate_of_an_authority_without_a_list_is_refused(tmp_path: Path, client_crl: bool) -> None:
    other = Authority(tmp_path / "other")
    async for stage in staged(tmp_path, client_ca=True, client_crl=client_crl, beside=other.certificate):
        assert await lets_in(stage, stage.authority.sign("listed"))
        assert await lets_in(stage, other.sign("unlisted")) is not client_crl


@pytest.mark.parametrize("content", ["authority", "nothing", "no PEM"])
def test_a_file_of_other_things_is_no_list_of_revoked_certificates(tmp_path: Path, content: str) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    crl = tmp_path / "crl.pem"
    crl.write_bytes({"authority": authority.certificate.read_bytes(), "nothing": b""}.get(content, b"no PEM"))
    with pytest.raises(TlsFilesError, match=f"tls_client_crl {crl}"):
        load(TlsFiles(server.certificate, server.key, client_ca=authority.certificate, client_crl=crl))


async def lets_in(stage: Stage, client: Signed | None, host: str = HOST) -> bool:
    try:
        await stage.name_shown(client, host)
    except (ssl.SSLError, asyncio.IncompleteReadError, ConnectionError):
        return False
    return True
