"""Tokens for OAUTHBEARER: what an issuer is asked, how long a token serves, and what no error says."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from mesh import bearer_tokens
from mesh.bearer_tokens import TokenError, TokenSource, unsecured_token
from mesh.connection_security import ConnectionSecurity, ExchangedTokenLogin, IssuedTokenLogin, UnsecuredTokenLogin
from tests.fixtures.certificates import Authority
from tests.fixtures.oauth_issuer import CLIENT_SECRET, FakeIssuer


@pytest.fixture(scope="module")
def running_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeIssuer]:
    folder = tmp_path_factory.mktemp("issuer")
    with FakeIssuer(folder, Authority(folder)).running() as issuer:
        yield issuer


@pytest.fixture
def issuer(running_issuer: FakeIssuer) -> FakeIssuer:
    running_issuer.asked, running_issuer.outage, running_issuer.life_s = 0, False, 300
    return running_issuer


def login(issuer: FakeIssuer, secret: str = CLIENT_SECRET) -> IssuedTokenLogin:
    found = ConnectionSecurity.of({"security.protocol": "sasl_ssl", **issuer.properties(secret)}).login
    assert isinstance(found, IssuedTokenLogin)
    return found


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return said


async def test_an_issuer_gives_a_token_that_serves_until_most_of_its_life_is_over(issuer: FakeIssuer) -> None:
    tokens = TokenSource(login(issuer))
    token = await tokens.token()
    assert (claims(token.value)["sub"], token.extensions) == ("mesh", {"tenant": "fruit"})
    assert token.renew_at - time.monotonic() == pytest.approx(240, abs=30)
    assert await tokens.token() is token
    assert issuer.asked == 1


async def test_a_token_is_replaced_before_its_end(issuer: FakeIssuer) -> None:
    issuer.life_s = 0
    tokens = TokenSource(login(issuer))
    assert (await tokens.token()) is not (await tokens.token())
    assert issuer.asked == 2


async def test_a_token_serves_to_its_end_while_the_issuer_is_away(
    issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bearer_tokens, "RENEW_AFTER", 0.0)
    tokens = TokenSource(login(issuer))
    token = await tokens.token()
    issuer.outage = True
    assert await tokens.token() is token
    assert await tokens.token() is token
    assert issuer.asked == 2, "an issuer that just failed is left in peace"


async def test_without_a_living_token_the_issuers_reason_is_told(issuer: FakeIssuer) -> None:
    issuer.outage = True
    with pytest.raises(TokenError, match=r"https://127\.0\.0\.1:\d+/token gives no token: 503 temporarily_unavailable"):
        await TokenSource(login(issuer)).token()


async def test_a_wrong_secret_is_not_told_though_the_issuer_sends_it_back(issuer: FakeIssuer) -> None:
    with pytest.raises(TokenError, match=r"401 invalid_client not known: mesh:\(secret\)") as refused:
        await TokenSource(login(issuer, "wrong-horse")).token()
    assert "wrong-horse" not in str(refused.value)


async def test_a_token_that_a_broker_refused_is_not_shown_again(
    issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenSource(login(issuer))
    token = await tokens.token()
    tokens.doubt()
    assert await tokens.token() is token, "it was made for the broker that refused it"
    monkeypatch.setattr(bearer_tokens, "DOUBT_AFTER_S", -1.0)
    tokens.doubt()
    assert await tokens.token() is not token


def exchange(issuer: FakeIssuer, subject_token: str, audience: str = "") -> ExchangedTokenLogin:
    own = login(issuer)
    said = {each.name: getattr(own, each.name) for each in fields(IssuedTokenLogin)}
    return ExchangedTokenLogin(**said, audience=audience, subject_token=subject_token)


async def test_an_issuer_gives_a_token_of_the_same_user_for_another_audience(issuer: FakeIssuer) -> None:
    token = await TokenSource(exchange(issuer, issuer.token("alice", "gateway"), "c1")).token()
    assert (claims(token.value)["sub"], claims(token.value)["aud"]) == ("alice", "c1")
    assert issuer.asked == 1


async def test_a_token_that_the_issuer_does_not_exchange_is_not_told_though_the_issuer_sends_it_back(
    issuer: FakeIssuer,
) -> None:
    with pytest.raises(TokenError, match=r"400 invalid_request not of this issuer: \(secret\)") as refused:
        await TokenSource(exchange(issuer, "wrong.horse.token")).token()
    assert "horse" not in str(refused.value)
    assert "horse" not in repr(exchange(issuer, "wrong.horse.token"))


async def test_a_secret_is_read_when_it_is_needed(issuer: FakeIssuer, tmp_path: Path) -> None:
    tokens = TokenSource(login(issuer, f"${{file:{tmp_path}/secret}}"))
    with pytest.raises(TokenError, match=r"sasl\.oauthbearer\.client\.secret: .*can't be read"):
        await tokens.token()


async def test_an_issuer_that_is_not_trusted_gets_no_secret(issuer: FakeIssuer, tmp_path: Path) -> None:
    other = replace(login(issuer), ca_location=str(Authority(tmp_path).certificate))
    with pytest.raises(TokenError, match=r"/token: .*certificate verify failed"):
        await TokenSource(other).token()
    assert issuer.asked == 0


async def test_an_issuer_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearer_tokens, "ISSUER_TIMEOUT_S", 0.2)
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        with pytest.raises(TokenError, match=r"/token: no token within 0\.2 s"):
            await TokenSource(IssuedTokenLogin(url, "mesh", "secret")).token()


async def test_an_address_by_reference_must_be_https_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISSUER", "http://issuer/token")
    with pytest.raises(TokenError, match="only https"):
        await TokenSource(IssuedTokenLogin("${env:ISSUER}", "mesh", "secret")).token()


def test_an_unsecured_token_as_librdkafka_makes_it() -> None:
    token = unsecured_token("principal=mesh scope=a,b lifeSeconds=600 scopeClaimName=roles extension_tenant=fruit")
    said = claims(token.value)
    assert (said["sub"], said["roles"], said["exp"] - said["iat"]) == ("mesh", ["a", "b"], 600)
    assert (token.value[-1], token.life_s, token.extensions) == (".", 600, {"tenant": "fruit"})


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("scope=a", "principal= is missing"),
        ("principal=mesh lifeSeconds=long", "lifeSeconds= is no number"),
        ("principal=mesh life=5", r"unknown: life \(known: principal,"),
        ("mesh", "NAME=VALUE"),
        ("principal=mesh extension_auth=x", "'auth' can't be sent"),
        ("principal=mesh extension_a1=x", "'a1' can't be sent"),
    ],
)
async def test_what_makes_no_token_is_named(config: str, reason: str) -> None:
    with pytest.raises(TokenError, match=rf"sasl\.oauthbearer\.(config|extensions): .*{reason}"):
        await TokenSource(UnsecuredTokenLogin(config)).token()
