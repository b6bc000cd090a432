"""Mutual TLS on gRPC: real servers and channels, certificates that are renewed, of others, or broken."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mesh.rpc import replicas
from mesh.rpc.channels import open_blocking_channel, open_channel
from mesh.rpc.replicas import Replicas
from mesh.rpc.server import RpcServer
from mesh.rpc.tls import RpcTls, RpcTlsError
from tests.fixtures.certificates import Authority
from tests.fixtures.members import certificate_of
from tests.fixtures.waiting import until

CALL_S = 60.0
CONNECTIONS, RENEWALS = 1500, 3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("mesh"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("others"))


@asynccontextmanager
async def serving(tls: RpcTls) -> AsyncIterator[str]:
    """The address of a server that asks callers for certificates."""
    server = RpcServer("127.0.0.1:0", {}, tls=tls)
    await server.start()
    await server.set_serving(True)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


async def answers(channel: Any) -> bool:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def refusal(address: str, tls: RpcTls | None) -> grpc.StatusCode:
    async with open_channel(address, tls) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await answers(channel)
    return refused.value.code()


async def test_callers_with_a_certificate_of_the_mesh_are_answered(authority: Authority) -> None:
    caller = certificate_of(authority, "viewer", "ada")
    async with serving(certificate_of(authority, "control", "control-1")) as address:
        async with open_channel(address, caller) as channel:
            assert await answers(channel)
        with open_blocking_channel(address, caller) as blocking:
            grpc.channel_ready_future(blocking).result(timeout=CALL_S)


async def test_callers_without_or_with_a_certificate_of_others_are_not(authority: Authority, others: Authority) -> None:
    stranger = certificate_of(others, "admin", "eve")
    async with serving(certificate_of(authority, "control", "control-1")) as address:
        assert await refusal(address, None) is grpc.StatusCode.UNAVAILABLE
        assert await refusal(address, stranger) is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_does_not_speak_to_a_server_of_another_host(authority: Authority) -> None:
    caller = certificate_of(authority, "viewer", "ada")
    async with serving(certificate_of(authority, "control", "elsewhere", host="IP:127.0.0.9")) as address:
        assert await refusal(address, caller) is grpc.StatusCode.UNAVAILABLE


async def test_a_server_serves_a_renewed_certificate_and_keeps_the_last_one_that_works(
    authority: Authority, others: Authority
) -> None:
    tls, caller = certificate_of(authority, "control", "renewed"), certificate_of(authority, "viewer", "ada")
    of_others = certificate_of(others, "viewer", "ada")
    async with serving(tls) as address:
        tls.certificate.write_text("no certificate", encoding="ascii")
        async with open_channel(address, caller) as channel:
            assert await answers(channel)
        renewed = certificate_of(others, "control", "renewed")
        for file in ("ca.crt", "tls.crt", "tls.key"):
            (renewed.folder / file).replace(tls.folder / file)
        async with open_channel(address, of_others) as channel:
            assert await answers(channel)
        assert await refusal(address, caller) is grpc.StatusCode.UNAVAILABLE


SERVER = """
import asyncio, pathlib, sys
from mesh.rpc.server import RpcServer
from mesh.rpc.tls import RpcTls

async def serve():
    server = RpcServer("127.0.0.1:0", {}, tls=RpcTls(pathlib.Path(sys.argv[1])))
    await server.start()
    print(server.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(serve())
"""


def test_connections_at_the_same_time_do_not_end_the_process_while_certificates_are_renewed(
    authority: Authority,
) -> None:
    """gRPC's core has no lock there (grpc/grpc#36693): a server that renewed with each connection died in seconds."""
    tls = certificate_of(authority, "control", "busy")
    context = ssl.create_default_context(cafile=tls.ca)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_alpn_protocols(["h2"])
    command = [sys.executable, "-c", SERVER, str(tls.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = int(server.stdout.readline())

        def connect(number: int) -> None:
            if number % (CONNECTIONS // RENEWALS) == 0:
                renewed = certificate_of(authority, "control", "busy again")
                for file in ("tls.crt", "tls.key"):
                    (renewed.folder / file).replace(tls.folder / file)
            with socket.create_connection(("127.0.0.1", port), CALL_S) as plain:
                context.wrap_socket(plain, server_hostname="127.0.0.1").close()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(connect, range(CONNECTIONS)))
        assert server.poll() is None
        server.stdin.close()
        assert server.wait(CALL_S) == 0


async def test_calls_to_replicas_go_on_with_a_renewed_certificate(
    authority: Authority, others: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server changes its authority too, so that only the renewed certificate is let in."""
    monkeypatch.setattr(replicas, "CHECK_FILES_S", 0.05)
    server, caller = certificate_of(authority, "control", "moved"), certificate_of(authority, "sidecar", "shop")
    async with serving(server) as address, Replicas((address,), caller) as channel:
        assert await answers(channel)
        for tls, role in ((server, "control"), (caller, "sidecar")):
            renewed = certificate_of(others, role, "moved")
            for file in ("ca.crt", "tls.key", "tls.crt"):
                (renewed.folder / file).replace(tls.folder / file)
        first = channel._channels
        await until(lambda: channel._channels is not first, "the files are read again")
        assert await answers(channel)


@pytest.mark.parametrize(
    ("broken", "content", "said"),
    [
        ("tls.crt", None, "No such file"),
        ("tls.key", "no key", "tls.key.*not in PEM"),
        ("ca.crt", "no authority", "ca.crt.*not in PEM"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    authority: Authority, tmp_path: Path, broken: str, content: str | None, said: str
) -> None:
    whole = certificate_of(authority, "router", "router-1")
    for file in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / file).write_bytes((whole.folder / file).read_bytes())
    if content is None:
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_text(content, encoding="ascii")
    for use in (RpcTls(tmp_path).server_credentials, RpcTls(tmp_path).channel_credentials):
        with pytest.raises(RpcTlsError, match=said):
            use()
