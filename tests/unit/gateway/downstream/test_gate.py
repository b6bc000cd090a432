"""Clients that log in at a whole gateway: what they are told, when they are let in, and what closes the connection."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from mesh.connection_security import Mechanism
from mesh.scram import Verifier
from mesh.user_files import Users, written
from services.gateway.authentication import conversation
from services.gateway.downstream import gate
from services.gateway.upstream.sasl import Password, Scram
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.downstream.raw_client import RawClient

PASSWORD = "correct horse battery staple"
MECHANISMS = "SCRAM-SHA-512 SCRAM-SHA-256 PLAIN"
KNOWN = {
    mechanism: Verifier.of_password(mechanism, PASSWORD)
    for mechanism in (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)
}
PLAIN_TOKEN = f"\0alice\0{PASSWORD}".encode()


def users(*names: str) -> bytes:
    return written(Users(dict.fromkeys(names, KNOWN), b"s" * 32))


def entered(folder: Path, **settings: Any) -> AbstractAsyncContextManager[Stage]:
    file = folder / "users.yaml"
    file.write_bytes(users("alice", "bob"))
    values = {"sasl_mechanisms": (MECHANISMS,), "allow_insecure": True, "users_file": file, **settings}
    return staged(folder, listen=("SASL_PLAINTEXT://127.0.0.1:0",), **values)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with entered(tmp_path) as found:
        yield found


async def shakes(client: RawClient, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    return await client.ask(SaslHandshakeRequest(mechanism), version, SaslHandshakeResponse)


async def tells(client: RawClient, token: bytes) -> SaslAuthenticateResponse:
    return await client.ask(SaslAuthenticateRequest(token), 2, SaslAuthenticateResponse)


async def logs_in(client: RawClient, name: str = "alice", password: str = PASSWORD) -> SaslAuthenticateResponse:
    """By SCRAM-SHA-256."""
    assert (await shakes(client, "SCRAM-SHA-256")).error_code == 0
    scram = Scram(Password(Mechanism.SCRAM_SHA_256, name, password))
    token: bytes | None = scram.first()
    while token is not None:
        answer = await tells(client, token)
        if answer.error_code:
            return answer
        token = scram.next(bytes(answer.auth_bytes))
    return answer


async def topics(client: RawClient) -> list[str]:
    answer = await client.ask(MetadataRequest(None), 12, MetadataResponse)
    return sorted(topic.name or "" for topic in answer.topics)


def principals(stage: Stage) -> list[str]:
    return [each.session.principal for each in stage.gateway.connections]


async def test_a_client_that_has_logged_in_is_served_as_its_principal(stage: Stage) -> None:
    client = await stage.connect()
    versions = await client.ask(ApiVersionsRequest("test", "1"), 4, ApiVersionsResponse)
    assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= {each.api_key for each in versions.api_keys}
    done = await logs_in(client)
    assert (done.error_code, done.session_lifetime_ms) == (0, 0)
    assert principals(stage) == ["User:alice"]
    assert await topics(client) == ["apples", "bananas"]


async def test_bare_tokens_after_the_first_version_of_the_handshake(stage: Stage) -> None:
    client = await stage.connect()
    assert (await shakes(client, "SCRAM-SHA-512", 0)).error_code == 0
    scram = Scram(Password(Mechanism.SCRAM_SHA_512, "bob", PASSWORD))
    token: bytes | None = scram.first()
    while token is not None:
        client.send_bytes(len(token).to_bytes(4, "big") + token)
        token = scram.next(await client.frame())
    assert principals(stage) == ["User:bob"]
    assert await topics(client) == ["apples", "bananas"]


async def test_bare_tokens_of_plain_are_answered_with_an_empty_one(stage: Stage) -> None:
    client = await stage.connect()
    await shakes(client, "PLAIN", 0)
    client.send_bytes(len(PLAIN_TOKEN).to_bytes(4, "big") + PLAIN_TOKEN)
    assert await client.frame() == b""
    assert await topics(client) == ["apples", "bananas"]


async def test_a_wrong_bare_token_just_ends_the_connection(stage: Stage) -> None:
    client = await stage.connect()
    await shakes(client, "PLAIN", 0)
    client.send_bytes((12).to_bytes(4, "big") + b"\0alice\0wrong")
    assert await client.closed() == b""


async def test_an_unknown_mechanism_is_told_which_there_are(stage: Stage) -> None:
    client = await stage.connect()
    answer = await shakes(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == MECHANISMS.split()
    assert await client.closed() == b""


@pytest.mark.parametrize("name", ["alice", "nobody"])
async def test_a_wrong_password_and_an_unknown_user_get_the_same_text_of_kafka(stage: Stage, name: str) -> None:
    client = await stage.connect()
    with capture_logs() as logs:
        answer = await logs_in(client, name, "wrong")
        assert await client.closed() == b""
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    (told,) = [each for each in logs if each["event"] == "closing a connection: the client could not log in"]
    assert (told["reason"], told["mechanism"]) == ("unknown user or wrong password", "SCRAM-SHA-256")
    assert name not in str(logs)


async def test_a_password_is_in_no_log_line(stage: Stage) -> None:
    with capture_logs() as logs:
        for token in (PLAIN_TOKEN, f"\0{PASSWORD}\0{PASSWORD}".encode(), PASSWORD.encode(), b"\xff" + PLAIN_TOKEN):
            client = await stage.connect()
            await shakes(client, "PLAIN")
            answer = await tells(client, token)
            assert PASSWORD not in str(answer)
    assert PASSWORD not in str(logs)
    assert logs


@pytest.mark.parametrize("after_handshake", [False, True])
async def test_any_other_request_before_the_log_in_ends_the_connection(stage: Stage, after_handshake: bool) -> None:
    client = await stage.connect()
    if after_handshake:
        await shakes(client, "PLAIN")
    client.send(MetadataRequest(None), 12)
    assert await client.closed() == b""


async def test_a_token_without_a_handshake_ends_the_connection(stage: Stage) -> None:
    client = await stage.connect()
    client.send(SaslAuthenticateRequest(PLAIN_TOKEN), 2)
    assert await client.closed() == b""


async def test_api_versions_has_no_place_after_the_handshake(stage: Stage) -> None:
    client = await stage.connect()
    await shakes(client, "PLAIN")
    client.send(ApiVersionsRequest(), 0)
    assert await client.closed() == b""


async def test_requests_that_come_while_a_password_is_checked_wait(stage: Stage) -> None:
    client = await stage.connect()
    await shakes(client, "PLAIN")
    client.send(SaslAuthenticateRequest(PLAIN_TOKEN), 2)
    client.send(MetadataRequest(None), 12)
    assert (await client.answer(SaslAuthenticateResponse)).error_code == 0
    assert len((await client.answer(MetadataResponse)).topics) == 2


async def test_requests_behind_a_wrong_password_are_not_served(stage: Stage) -> None:
    client = await stage.connect()
    await shakes(client, "PLAIN")
    client.send(SaslAuthenticateRequest(b"\0alice\0wrong"), 2)
    client.send(MetadataRequest(None), 12)
    assert (await client.answer(SaslAuthenticateResponse)).error_message == (
        "Authentication failed: Invalid username or password"
    )
    assert await client.closed() == b""


@pytest.mark.parametrize(
    "hostile",
    [
        (gate.FIRST_FRAMES_BYTES + 1).to_bytes(4, "big") + b"\0" * 100,
        b"\x16\x03\x01\x02\x00\x01",
        (3).to_bytes(4, "big") + b"abc",
        (0).to_bytes(4, "big"),
        (20).to_bytes(4, "big") + b"\xff" * 20,
        (12).to_bytes(4, "big") + b"\0\x11\0\1\0\0\0\1\x7f\xff\0\0",
    ],
)
async def test_hostile_bytes_end_the_connection(stage: Stage, hostile: bytes) -> None:
    client = await stage.connect()
    client.send_bytes(hostile)
    assert await client.closed() == b""


async def test_large_requests_are_taken_after_the_log_in(stage: Stage) -> None:
    client = await stage.connect()
    await logs_in(client)
    answer = await client.ask(MetadataRequest(None), 12, MetadataResponse, client_id="x" * 32_767)
    assert len(answer.topics) == 2


async def test_a_client_that_does_not_log_in_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOGIN_S", 0.2)
    async with entered(tmp_path) as stage:
        client = await stage.connect()
        assert await client.closed() == b""


async def test_many_tokens_are_too_many(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MOST_TOKENS", 1)
    client = await stage.connect()
    answer = await logs_in(client)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.closed() == b""


async def test_without_sessions_a_second_log_in_is_refused_as_by_brokers(stage: Stage) -> None:
    client = await stage.connect()
    await logs_in(client)
    assert (await shakes(client, "SCRAM-SHA-256")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = await tells(client, PLAIN_TOKEN)
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert await topics(client) == ["apples", "bananas"]


# --- sessions with an end (KIP-368) -----------------------------------------------------------------------------------


async def test_a_session_is_renewed_on_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "RENEWAL_S", 0)
    async with entered(tmp_path, sasl_max_session_s=60.0) as stage:
        client = await stage.connect()
        for _ in range(3):
            assert 0 < (await logs_in(client)).session_lifetime_ms <= 60_000
            assert await topics(client) == ["apples", "bananas"]


async def test_an_expired_session_ends_at_the_next_request_but_can_be_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "RENEWAL_S", 0)
    async with entered(tmp_path, sasl_max_session_s=0.3) as stage:
        renewing, silent = await stage.connect(), await stage.connect()
        for client in (renewing, silent):
            await logs_in(client)
        gates = [each._gate for each in stage.gateway.connections]
        async with asyncio.timeout(30):
            while not all(each is not None and each.is_shut for each in gates):
                await asyncio.sleep(0.02)
        silent.send(MetadataRequest(None), 12)
        assert await silent.closed() == b""
        assert (await logs_in(renewing)).error_code == 0


async def test_a_renewal_keeps_principal_and_mechanism(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "RENEWAL_S", 0)
    async with entered(tmp_path, sasl_max_session_s=60.0) as stage:
        client = await stage.connect()
        await logs_in(client)
        answer = await logs_in(client, "bob")
        assert answer.error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
        assert await client.closed() == b""
        client = await stage.connect()
        await logs_in(client)
        assert (await shakes(client, "PLAIN")).error_code == 0
        assert (await tells(client, PLAIN_TOKEN)).error_message == (
            "SASL mechanism 'PLAIN' requested by client is not supported for re-authentication of mechanism "
            "'SCRAM-SHA-256'"
        )
        assert await client.closed() == b""


async def test_a_renewal_too_soon_is_refused_as_by_brokers(tmp_path: Path) -> None:
    async with entered(tmp_path, sasl_max_session_s=60.0) as stage:
        client = await stage.connect()
        await logs_in(client)
        assert (await shakes(client, "SCRAM-SHA-256")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await topics(client) == ["apples", "bananas"]


# --- users ------------------------------------------------------------------------------------------------------------


async def test_the_connections_of_a_user_end_when_the_user_goes_or_changes(tmp_path: Path) -> None:
    async with entered(tmp_path) as stage:
        alice, bob = await stage.connect(), await stage.connect()
        await logs_in(alice)
        await logs_in(bob, "bob")
        (tmp_path / "users.yaml").write_bytes(users("bob"))
        async with asyncio.timeout(30):
            assert await alice.closed() == b""
        assert await topics(bob) == ["apples", "bananas"]
        assert (await logs_in(await stage.connect())).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_file_of_users_that_can_not_be_read_leaves_the_last_users(tmp_path: Path) -> None:
    async with entered(tmp_path) as stage:
        alice = await stage.connect()
        await logs_in(alice)
        with capture_logs() as logs:
            (tmp_path / "users.yaml").write_text(f"users: {{alice: {base64.b64encode(b'key').decode()}}}")
            async with asyncio.timeout(30):
                while not logs:
                    await asyncio.sleep(0.02)
        assert logs[0]["event"] == "the file of users could not be read again, the last users stay"
        assert "a2V5" not in str(logs)
        assert await topics(alice) == ["apples", "bananas"]


async def test_an_address_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    async with entered(tmp_path, max_connections_per_address=2) as stage:
        first, _second, third = [await stage.connect() for _ in range(3)]
        assert await third.closed() == b""
        assert len(stage.gateway.connections) == 2, "of the refused connection nothing stays"
        first.close()
        await until(lambda: len(stage.gateway.connections) == 1)
        assert (await logs_in(await stage.connect())).error_code == 0


async def test_a_principal_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    async with entered(tmp_path, max_connections_per_principal=1) as stage:
        first, second, third = [await stage.connect() for _ in range(3)]
        assert (await logs_in(first)).error_code == 0
        assert (await logs_in(second, "bob")).error_code == 0, "somebody else"
        await logs_in(third)
        assert await third.closed() == b""
        assert await topics(first) == ["apples", "bananas"]
