"""Callers with bearer tokens of an issuer, at a control that takes them on an address of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from mesh.rpc import access, admin, admin_grpc, grants, grants_grpc
from mesh.rpc.channels import OPTIONS
from mesh.rpc.token_callers import PeopleIssuer
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.forked_meshctl import forked_meshctl
from tests.fixtures.members import certificate_of
from tests.fixtures.token_issuer import TokenIssuer
from tests.integration.control.world import CALL, World, refused, until

DENIED, UNKNOWN = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
KEYS_TIMEOUT_MS = 20_000
"""The stand-in for the issuer shares its processor with all tests."""
MESH = "mesh"
"""The audience."""


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer().running() as made:
        yield made


@pytest.fixture
async def world(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority, issuer: TokenIssuer
) -> AsyncIterator[World]:
    made = World(
        database, kafka_c1.bootstrap, events_topic, token_listen="127.0.0.1:0", first_admins=("root",),
        token_keys_timeout_ms=KEYS_TIMEOUT_MS,
        rpc_tls_folder=certificate_of(authority, "control", "control-1").folder,
        token_issuers=(PeopleIssuer(issuer=issuer.url, audience=(MESH,)),),
    )  # fmt: skip
    made.caller = certificate_of(authority, "viewer", "root")
    async with made as started:
        await started.register("c1", kafka_c1.bootstrap)
        yield started


class Caller:
    """A caller that shows a token, or none, and no certificate."""

    def __init__(self, world: World, authority: Authority, token: str | None) -> None:
        trusted = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
        self.channel = grpc.aio.secure_channel(f"127.0.0.1:{world.control.server.token_port}", trusted, options=OPTIONS)
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._rules = admin_grpc.RuleServiceStub(self.channel)
        self._decisions = admin_grpc.QueryServiceStub(self.channel)
        self._changes = admin_grpc.ChangeControlServiceStub(self.channel)

    def list_rules(self) -> Awaitable[admin.ListRulesResponse]:
        return self._rules.ListRules(admin.ListRulesRequest(), timeout=CALL, metadata=self._metadata)

    def freeze(self) -> Awaitable[admin.FreezeResponse]:
        return self._changes.Freeze(admin.FreezeRequest(reason="x"), timeout=CALL, metadata=self._metadata)

    def watch(self) -> Any:
        return self._decisions.WatchEvents(admin.WatchEventsRequest(from_position=1), metadata=self._metadata)


async def grant(world: World, principal: str, role: access.Role.ValueType) -> None:
    request = grants.GrantRoleRequest(grant=grants.Grant(principal=principal, role=role))
    await grants_grpc.AccessServiceStub(world.channel).GrantRole(request, timeout=CALL)


async def test_a_token_has_the_rights_that_its_principal_and_its_groups_have(
    world: World, authority: Authority, issuer: TokenIssuer
) -> None:
    ada = Caller(world, authority, issuer.token(aud=MESH, sub="ada", groups=["platform"]))
    await refused(ada.list_rules(), DENIED, "oidc:ada has no grant")
    await grant(world, "oidc:ada", access.ROLE_VIEWER)
    await ada.list_rules()
    await refused(ada.freeze(), DENIED, "needs the role operator")
    await grant(world, "group:platform", access.ROLE_OPERATOR)
    await ada.freeze()
    assert (await world.history())[0].actor == "oidc:ada"
    await ada.channel.close()


async def test_a_name_of_an_issuer_is_none_in_a_certificate(
    world: World, authority: Authority, issuer: TokenIssuer
) -> None:
    root = Caller(world, authority, issuer.token(aud=MESH, sub="root"))
    await refused(root.list_rules(), DENIED, "oidc:root has no grant")
    await root.channel.close()


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"aud": "another"}, "(aud)"),
        ({"iss": "https://elsewhere"}, "(iss)"),
        ({"expires_in": -600}, "has expired"),
        ({"sub": None}, "sub is no name"),
        ({"sub": "two words"}, "sub is no name"),
        ({"groups": "platform"}, "groups is no list"),
    ],
)
async def test_a_token_that_does_not_count_is_refused_and_on_record(
    world: World, authority: Authority, issuer: TokenIssuer, claims: dict[str, Any], why: str
) -> None:
    eve = Caller(world, authority, issuer.token(**{"aud": MESH, "sub": "eve", **claims}))
    await refused(eve.list_rules(), UNKNOWN, why)
    await eve.channel.close()

    async def is_on_record() -> bool:
        request = admin.ListAuditEventsRequest(refused_only=True)
        found = (await world.decisions.ListAuditEvents(request, timeout=CALL)).audit_events
        return [each.code for each in found] == ["UNAUTHENTICATED"] and why in found[0].problem

    await until(is_on_record, "the refused call is on record")


async def test_who_shows_nothing_is_nobody(world: World, authority: Authority, issuer: TokenIssuer) -> None:
    nobody = Caller(world, authority, None)
    await refused(nobody.list_rules(), UNKNOWN, "a bearer token does instead")
    await refused(nobody.watch().read(), UNKNOWN)
    await nobody.channel.close()
    stranger = TokenIssuer()
    forger = Caller(world, authority, stranger.token(iss=issuer.url, aud=MESH, sub="ada"))
    await refused(forger.list_rules(), UNKNOWN, "signature")
    await forger.channel.close()


async def test_an_issuer_that_is_away_is_told_apart_from_a_wrong_token(
    world: World, authority: Authority, issuer: TokenIssuer
) -> None:
    issuer.outage = True
    ada = Caller(world, authority, issuer.token(aud=MESH, sub="ada"))
    await refused(ada.list_rules(), grpc.StatusCode.UNAVAILABLE, "it answers 503")
    await ada.channel.close()


async def test_meshctl_takes_the_token_of_a_context(
    world: World, authority: Authority, issuer: TokenIssuer, tmp_path: Path
) -> None:
    await grant(world, "oidc:ada", access.ROLE_VIEWER)
    token_file, folder = tmp_path / "token", tmp_path / "config"
    token_file.write_text(issuer.token(aud=MESH, sub="ada"))
    token_file.chmod(0o644)

    async def meshctl(*words: str) -> tuple[int, str]:
        done = await asyncio.to_thread(forked_meshctl().call, words, {"MESHCTL_CONFIG_FOLDER": str(folder)}, tmp_path)
        return done.returncode, done.stdout + done.stderr

    address = f"127.0.0.1:{world.control.server.token_port}"
    how = ("--address", address, "--token-file", str(token_file), "--ca", str(authority.certificate))
    code, said = await meshctl("context", "set", "prod", *how)
    assert code == 0, said
    code, said = await meshctl("rule", "list")
    assert code == 2
    assert f"others can read the token: chmod 600 {token_file}" in said
    token_file.chmod(0o600)
    code, said = await meshctl("rule", "list")
    assert code == 0, said
    code, said = await meshctl("freeze", "--reason", "x")
    assert code == 1
    assert "needs the role operator; oidc:ada has viewer" in said
