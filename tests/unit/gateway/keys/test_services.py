"""Services of keys: what they give, which failures are for ever, and which are not."""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesh.protection.keys import DataKey, KeyGoneError, KeysAwayError, Wrapped
from services.gateway.keys.key_file import KeyFile
from services.gateway.keys.services import UnknownKeyServiceError, check_service, key_service
from services.gateway.keys.vault import Vault
from tests.fixtures.transit import Transit, transit

ONE, TWO = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


async def test_a_key_file_wraps_by_the_newest_version_and_unwraps_by_each(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    file = KeyFile(path)
    path.write_text(f"# ours\n\npii 2 {ONE}\nother 9 {ONE}\n")
    first = await file.make("pii")
    path.write_text(f"pii 2 {ONE}\npii 10 {TWO}\n")
    second = await file.make("pii")
    assert [int.from_bytes(each.name.wrapped[:4]) for each in (first, second)] == [2, 10]
    assert await file.unwrap(first.name) == first.secret != await file.unwrap(second.name)
    path.write_text(f"pii 10 {TWO}\n")
    with pytest.raises(KeyGoneError, match="version 2 of key 'pii' is gone"):
        await file.unwrap(first.name)
    path.write_text(f"pii 10 {ONE}\n")
    with pytest.raises(KeyGoneError, match="has another value"):
        await file.unwrap(second.name)
    with pytest.raises(KeyGoneError, match="key 'cards' is gone"):
        await file.make("cards")
    with pytest.raises(KeyGoneError, match="not wrapped by a key file"):
        await file.unwrap(Wrapped("pii", b"short"))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "has no keys"),
        ("pii 1\n", "line 1: it has not three words"),
        (f"pii 1 {ONE}\npii 1 {TWO}\n", "line 2: its version of this id is there already"),
        (f"pii 0 {ONE}", "a version is a number above 0"),
        (f"-pii 1 {ONE}", "an id has 1 to 63 characters"),
        ("pii 1 c2hvcnQ=", "the key has 5 bytes, and 32 are right"),
        ("pii 1 hidden!", "the key is no base64"),
        ("#" * (1024 * 1024 + 1), "has more than"),
    ],
)
async def test_a_faulty_key_file_destroys_no_key_and_shows_none(tmp_path: Path, content: str, fault: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(KeysAwayError, match=fault) as away:
        await KeyFile(path).make("pii")
    assert "hidden" not in str(away.value)
    path.unlink()
    with pytest.raises(KeysAwayError, match="No such file"):
        await KeyFile(path).make("pii")


@pytest.fixture
def engine() -> Iterator[Transit]:
    with transit() as made:
        yield made


def client(engine: Transit, token: str | None = None) -> Vault:
    return Vault(engine.url, engine.token if token is None else token, ssl.create_default_context())


async def test_vault_wraps_rotates_and_forgets(engine: Transit, tmp_path: Path) -> None:
    key_id = f"pii-{uuid.uuid4().hex[:8]}"
    engine.create(key_id)
    (tmp_path / "token").write_text(engine.token + "\n")
    vault = client(engine, f"${{file:{tmp_path / 'token'}}}")
    try:
        first = await vault.make(key_id)
        engine.rotate(key_id)
        second = await vault.make(key_id)
        assert [each.name.wrapped[:9] for each in (first, second)] == [b"vault:v1:", b"vault:v2:"]
        assert [await vault.unwrap(each.name) for each in (first, second)] == [first.secret, second.secret]
        engine.forbid_before(key_id, 2)
        with pytest.raises(KeyGoneError):
            await vault.unwrap(first.name)
        assert await vault.unwrap(second.name) == second.secret
        damaged = Wrapped(key_id, b"vault:v2:" + base64.b64encode(bytes(60)))
        with pytest.raises(KeyGoneError):
            await vault.unwrap(damaged)
        engine.delete(key_id)
        for asked in (vault.make(key_id), vault.unwrap(second.name)):
            with pytest.raises(KeyGoneError, match=f"key {key_id!r} is gone"):
                await asked
    finally:
        await vault.close()


async def test_a_vault_that_is_away_or_refuses_the_gateway_destroys_no_key(engine: Transit) -> None:
    engine.create("away")
    wrong = client(engine, "another token")
    with pytest.raises(KeysAwayError, match="Vault answers 403 about key 'away'") as refused:
        await wrong.make("away")
    assert "another token" not in str(refused.value)
    await wrong.close()
    nobody = Vault("http://127.0.0.1:1/transit", "t", ssl.create_default_context())
    with pytest.raises(KeysAwayError, match="Vault does not answer: ConnectError"):
        await nobody.make("away")
    await nobody.close()
    tokenless = client(engine, "${file:/nowhere/token}")
    with pytest.raises(KeysAwayError, match="can't be read"):
        await tokenless.make("away")
    await tokenless.close()


async def test_a_vault_that_hangs_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.keys.vault.TIMEOUT_S", 0.2)
    async with await asyncio.start_server(lambda _, __: asyncio.sleep(5), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        vault = Vault(f"http://127.0.0.1:{port}/transit", "t", ssl.create_default_context())
        with pytest.raises(KeysAwayError):
            await vault.make("pii")
        await vault.close()


@pytest.mark.parametrize(
    ("named", "fault"),
    [
        ("file", "file:PATH, vault:URL, or PLUG-IN:TEXT"),
        (":x", "file:PATH, vault:URL, or PLUG-IN:TEXT"),
        ("file:keys", "begins with /"),
        ("vault:https://vault:8200", "has the path of the engine"),
        ("vault:vault/transit", "has the path of the engine"),
    ],
)
def test_settings_that_name_no_service(named: str, fault: str) -> None:
    with pytest.raises(UnknownKeyServiceError, match=fault):
        check_service(named)


def test_the_service_of_a_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        def __init__(self, text: str) -> None:
            self.text = text

        async def make(self, key_id: str) -> DataKey:
            raise KeyGoneError(key_id)

    class Entry:
        name = "own"

        def load(self) -> type[Own]:
            return Own

    monkeypatch.setattr(
        "services.gateway.keys.services.entry_points",
        lambda group, name=None: [Entry()] if name in (None, "own") and group == "kafka_mesh.key_services" else [],
    )
    made = key_service("own:some:text", "", None)
    assert isinstance(made, Own)
    assert made.text == "some:text"
    with pytest.raises(UnknownKeyServiceError, match=r"'other' is no service of keys \(known: file, vault, own\)"):
        key_service("other:x", "", None)
