"""What opens connections: resolved when needed, renewed, kept when it can't be renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.connection_security import ConnectionSecurity, Mechanism, PasswordLogin
from services.gateway.upstream import keyring as rings
from services.gateway.upstream.keyring import Keyring, KeyringError
from tests.fixtures.certificates import Authority
from tests.fixtures.oauth_issuer import FakeIssuer


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    say(file, "first")
    return file


def say(file: Path, password: str | None) -> None:
    """The operator writes the file anew, or takes it away."""
    if password is None:
        file.unlink()
    else:
        file.write_text(password)


def keyring(password: Path) -> Keyring:
    login = PasswordLogin(Mechanism.PLAIN, "mesh", f"${{file:{password}}}")
    return Keyring("c1", ConnectionSecurity(login=login))


async def current(ring: Keyring) -> str:
    credentials = (await ring.keys()).credentials
    return "" if credentials is None else credentials.secret


async def test_without_security_there_is_nothing_to_resolve() -> None:
    keys = await Keyring("c1", ConnectionSecurity()).keys()
    assert (keys.tls, keys.credentials) == (None, None)


async def test_connections_share_what_was_resolved(password: Path) -> None:
    ring = keyring(password)
    first, second = await asyncio.gather(ring.keys(), ring.keys())
    assert first is second is await ring.keys()


async def test_what_was_doubted_is_resolved_again(password: Path) -> None:
    ring = keyring(password)
    assert await current(ring) == "first"
    say(password, "second")
    assert await current(ring) == "first"
    ring.doubt()
    assert await current(ring) == "second"


async def test_what_worked_last_serves_while_it_cannot_be_renewed(password: Path) -> None:
    ring = keyring(password)
    assert await current(ring) == "first"
    say(password, None)
    ring.doubt()
    assert await current(ring) == "first"


async def test_what_is_missing_is_named_and_found_when_it_is_there(password: Path) -> None:
    say(password, None)
    ring = keyring(password)
    with pytest.raises(KeyringError, match=r"sasl\.password: .*can't be read"):
        await ring.keys()
    say(password, "late")
    assert await current(ring) == "late"


async def test_who_stops_waiting_disturbs_nobody(password: Path) -> None:
    ring = keyring(password)
    impatient = asyncio.create_task(ring.keys())
    patient = asyncio.create_task(current(ring))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == "first"


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[FakeIssuer]:
    with FakeIssuer(tmp_path, Authority(tmp_path)).running() as issuer:
        yield issuer


async def test_a_token_is_fetched_once_for_all_who_wait_and_lives_longer_than_the_keys(
    issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "FRESH_S", 0.0)
    monkeypatch.setattr(rings, "RETRY_S", 0.0)
    ring = Keyring("c1", ConnectionSecurity.of({"security.protocol": "sasl_plaintext", **issuer.properties()}))
    tokens = await asyncio.gather(*(current(ring) for _ in range(5)))
    assert len(set(tokens)) == 1
    assert await current(ring) == tokens[0]
    assert issuer.asked == 1


async def test_a_token_of_a_short_life_is_replaced(issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "RETRY_S", 0.0)
    issuer.life_s = 0
    ring = Keyring("c1", ConnectionSecurity.of({"security.protocol": "sasl_plaintext", **issuer.properties()}))
    await current(ring)
    await current(ring)
    assert issuer.asked == 2


async def test_without_a_token_there_are_no_keys(issuer: FakeIssuer) -> None:
    issuer.outage = True
    ring = Keyring("c1", ConnectionSecurity.of({"security.protocol": "sasl_plaintext", **issuer.properties()}))
    with pytest.raises(KeyringError, match="gives no token: 503"):
        await ring.keys()
