"""Users of control at a gateway: from a scripted router on a real gRPC connection, and from the disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from mesh.connection_security import Mechanism
from mesh.rpc import users as pb
from mesh.rpc import users_grpc
from mesh.scram import Verifier
from mesh.user_files import Users
from mesh.user_tables import UserTable, pages
from services.gateway.downstream import last_users, user_discovery
from services.gateway.downstream.awaited import Awaited
from services.gateway.downstream.last_table import UnusableTableError
from services.gateway.downstream.routers import Routers
from services.gateway.downstream.user_discovery import UserDiscovery
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import SaslAuthenticateRequest
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage, staged
from tests.unit.gateway.downstream.test_gate import KNOWN, MECHANISMS, PASSWORD, logs_in, shakes, topics

DEAD = "127.0.0.1:1"
SECRET = b"s" * 32
OTHER = {Mechanism.SCRAM_SHA_256: Verifier.of_password(Mechanism.SCRAM_SHA_256, "another password")}


def table(edition: int, *names: str, **others: Any) -> UserTable:
    return UserTable(edition, Users({**dict.fromkeys(names, KNOWN), **others}, SECRET))


class ScriptedRouter(users_grpc.UserDiscoveryServiceServicer):
    """Sends the pages that the test puts into `pages`, all in one stream or the next ones."""

    def __init__(self) -> None:
        self.pages: asyncio.Queue[pb.UserTablePage | None] = asyncio.Queue()
        self.streams = 0

    async def FollowUsers(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.UserTablePage]:
        self.streams += 1
        while (page := await self.pages.get()) is not None:
            yield page

    def sends(self, *sent: pb.UserTablePage | None) -> None:
        for page in sent:
            self.pages.put_nowait(page)


@asynccontextmanager
async def serving(router: ScriptedRouter) -> AsyncIterator[str]:
    server = grpc.aio.server()
    users_grpc.add_UserDiscoveryServiceServicer_to_server(router, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


class Following:
    """A UserDiscovery, and the users that counted, one after the other."""

    def __init__(self, folder: Path, *routers: str) -> None:
        self.counted: list[list[str]] = []
        self.discovery = UserDiscovery(Routers(routers), folder, self.take)

    def take(self, users: Users) -> None:
        self.counted.append(sorted(users.by_name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Following]:
        task = asyncio.create_task(self.discovery.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.discovery.stop()


@pytest.fixture
async def router() -> ScriptedRouter:
    return ScriptedRouter()


def refusals() -> float:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_refused_users_total") or 0


def age_s() -> float:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_users_age_seconds") or 0


async def test_all_users_count_first_and_each_change_after_it(router: ScriptedRouter, tmp_path: Path) -> None:
    first, second = table(3, "alice", "bob"), table(5, "alice", "carol")
    async with serving(router) as address, Following(tmp_path, DEAD, address).running() as following:
        router.sends(*first.pages(), *second.changes_since(first), *second.changes_since(second))
        await until(lambda: len(following.counted) == 2)
        assert following.counted == [["alice", "bob"], ["alice", "carol"]]
        assert following.discovery.has_users
    kept = last_users.load(tmp_path)
    assert kept is not None
    assert kept.table == second


async def test_half_of_an_edition_counts_for_nothing(router: ScriptedRouter, tmp_path: Path) -> None:
    whole, rest = table(3, "alice"), table(3, "bob")
    [first], [second] = whole.pages(), pages(3, rest.messages())
    first.more = True
    async with serving(router) as address, Following(tmp_path, address).running() as following:
        router.sends(first, None)
        await until(lambda: router.streams == 2)
        assert following.counted == []
        router.sends(first, second)
        await until(lambda: following.counted)
        assert following.counted == [["alice", "bob"]]


async def test_users_of_an_earlier_edition_are_refused_and_the_last_users_count(
    router: ScriptedRouter, tmp_path: Path
) -> None:
    before = refusals()
    async with serving(router) as address, Following(tmp_path, address).running() as following:
        with capture_logs() as logs:
            router.sends(*table(5, "alice").pages(), *table(4, "mallory").pages())
            await until(lambda: router.streams == 2)
            router.sends(*table(6, "bob").pages())
            await until(lambda: len(following.counted) == 2)
    assert following.counted == [["alice"], ["bob"]]
    assert refusals() == before + 1
    reasons = [each["reason"] for each in logs if "reason" in each]
    assert reasons == ["users are refused, the last users count on: edition 4 is older than 5, which counts here"]


async def test_users_that_cannot_be_used_are_refused_without_a_key_in_the_log(
    router: ScriptedRouter, tmp_path: Path
) -> None:
    [bad] = table(6, "bob").pages()
    key = bad.users[0].verifiers[0].stored_key
    bad.users[0].verifiers[0].iterations = 1
    before = refusals()
    async with serving(router) as address, Following(tmp_path, address).running() as following:
        with capture_logs() as logs:
            router.sends(*table(5, "alice").pages(), bad)
            await until(lambda: router.streams == 2)
            router.sends(*table(7, "carol").pages())
            await until(lambda: len(following.counted) == 2)
    assert following.counted == [["alice"], ["carol"]]
    assert refusals() == before + 1
    assert any("user 'bob': 1 iterations" in each.get("reason", "") for each in logs)
    assert repr(key)[2:-1] not in str(logs)


async def test_a_silent_router_is_left_for_another(
    router: ScriptedRouter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_discovery, "SILENCE_S", 0.2)
    other = ScriptedRouter()
    other.sends(*table(1, "alice").pages())
    async with (
        serving(router) as silent,
        serving(other) as address,
        Following(tmp_path, silent, address).running() as following,
    ):
        await until(lambda: following.counted)
        assert following.counted == [["alice"]]


async def test_a_fault_while_users_are_taken_is_no_end(router: ScriptedRouter, tmp_path: Path) -> None:
    async with serving(router) as address:
        following = Following(tmp_path, address)
        taken = iter([RuntimeError("a fault")])

        def take(users: Users) -> None:
            for fault in taken:
                raise fault
            following.take(users)

        following.discovery._on_users = take
        async with following.running():
            router.sends(*table(1, "alice").pages())
            await until(lambda: router.streams == 2)
            router.sends(*table(2, "bob").pages())
            await until(lambda: following.counted)
            assert following.counted == [["bob"]]


async def test_the_age_is_that_of_the_last_word_of_control(router: ScriptedRouter, tmp_path: Path) -> None:
    async with serving(router) as address, Following(tmp_path, address).running() as following:
        router.sends(*table(1, "alice").pages(age_s=7200.0))
        await until(lambda: following.counted)
        assert 7200 <= age_s() < 7200 + 600
        router.sends(*pages(1, []))
        await until(lambda: age_s() < 600)


async def test_the_file_is_for_its_owner_alone_and_an_older_table_does_not_replace_it(tmp_path: Path) -> None:
    for edition in (3, 5, 4):
        last_users.save_unless_older(tmp_path, table(edition, f"user-{edition}"))
    kept = last_users.load(tmp_path)
    assert kept is not None
    assert kept.table == table(5, "user-5")
    assert (tmp_path / last_users.FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"", table(1, "alice").changes_since(table(1, "alice"))])
def test_a_damaged_file_is_named_and_its_content_is_not(content: Any, tmp_path: Path) -> None:
    path = tmp_path / last_users.FILE_NAME
    path.write_bytes(content if isinstance(content, bytes) else next(content).SerializeToString())
    with pytest.raises(UnusableTableError, match=r"users\.pb: no users \(.*\); remove it to start without users"):
        last_users.load(tmp_path)


async def test_users_count_also_if_the_disk_takes_none(
    router: ScriptedRouter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    async with serving(router) as address, Following(tmp_path, address).running() as following:
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(last_users, "replace_file", full)
            router.sends(*table(1, "alice").pages())
            await until(lambda: any(each["event"] == "users could not be kept on disk" for each in logs))
        assert following.counted == [["alice"]]
        router.sends(*pages(2, table(2, "bob").messages()))
        await until(lambda: last_users.load(tmp_path) is not None)


# --- at a whole gateway -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def gateway(folder: Path, *routers: str) -> AsyncIterator[Stage]:
    """It has a routing table on disk, and starts with that."""
    Awaited(folder, "gateway-test").write()
    async with staged(
        folder,
        listen=("SASL_PLAINTEXT://127.0.0.1:0",),
        sasl_mechanisms=(MECHANISMS,),
        allow_insecure=True,
        router_addresses=routers,
        users_from_control=True,
    ) as found:
        yield found


async def test_a_gateway_starts_with_the_users_on_disk(tmp_path: Path) -> None:
    last_users.save_unless_older(tmp_path, table(1, "alice"))
    async with gateway(tmp_path, DEAD) as stage:
        client = await stage.connect()
        assert (await logs_in(client)).error_code == 0
        assert await topics(client) == ["apples", "bananas"]
        answer = await logs_in(await stage.connect(), password="wrong")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
async def test_before_users_have_ever_come_a_client_gets_no_answer_and_may_try_again(
    mechanism: str, router: ScriptedRouter, tmp_path: Path
) -> None:
    """A client that hears of a failed log-in gives up; a client whose connection ends tries again."""
    token = f"\0alice\0{PASSWORD}".encode() if mechanism == "PLAIN" else b"n,,n=alice,r=nonce"
    async with serving(router) as address:
        with capture_logs() as logs:
            async with gateway(tmp_path, address) as stage:
                client = await stage.connect()
                await shakes(client, mechanism)
                client.send(SaslAuthenticateRequest(token), 2)
                async with asyncio.timeout(30):
                    assert await client.closed() == b""
                router.sends(*table(1, "alice").pages())
                await until(lambda: any(each["event"] == "other users count" for each in logs))
                assert (await logs_in(await stage.connect())).error_code == 0
    told = [each for each in logs if each["log_level"] == "warning"]
    assert any(each["event"].startswith("no users of control have come yet: nobody can log in") for each in told)
    assert any(each.get("reason", "").startswith("no users of control have come yet") for each in told)


async def test_the_connections_of_users_who_change_end_and_others_stay(router: ScriptedRouter, tmp_path: Path) -> None:
    first, second = table(1, "alice", "bob", "carol"), table(3, "bob", carol=OTHER)
    async with serving(router) as address:
        router.sends(*first.pages())
        async with gateway(tmp_path, address) as stage:
            alice, bob, carol = [await stage.connect() for _ in range(3)]
            for client, name in ((alice, "alice"), (bob, "bob"), (carol, "carol")):
                assert (await logs_in(client, name)).error_code == 0
            router.sends(*second.changes_since(first))
            async with asyncio.timeout(30):
                assert await alice.closed() == await carol.closed() == b""
            assert await topics(bob) == ["apples", "bananas"]
            assert (await logs_in(await stage.connect(), "carol")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert (await logs_in(await stage.connect(), "carol", "another password")).error_code == 0
