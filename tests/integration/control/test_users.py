"""Users as decisions at a real control: the log, PostgreSQL, the answers, and a search for verifiers in all of them."""

from __future__ import annotations

import asyncio
import base64
import uuid
from datetime import UTC, datetime, timedelta

import grpc
import psycopg
import pytest
from google.protobuf.message import Message

from mesh.rpc import admin, users, users_grpc
from mesh.scram import SCRAM_HASHES, Verifier
from mesh.scram_codec import verifier_from_proto, verifier_to_proto
from mesh.user_tables import PageReader, UserTable
from services.control.store.database import Database
from services.control.store.verifiers import DELETED_KEPT, UserVerifiers
from tests.integration.control.world import CALL, WITHIN, World, checked, log_in_kafka, refused

NOT_FOUND, FAILED = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION
PASSWORD = "a password in no place"


class Users:
    """Calls of UserService, with the bytes that must be in no other place than one table."""

    def __init__(self, world: World) -> None:
        self.stub = users_grpc.UserServiceStub(world.channel)
        self.secrets: list[bytes] = [PASSWORD.encode()]

    async def set(self, name: str, **more: str) -> int:
        verifiers = [Verifier.of_password(each, PASSWORD) for each in SCRAM_HASHES]
        self.secrets += [part for each in verifiers for part in (each.salt, each.stored_key, each.server_key)]
        request = users.SetUserRequest(user=name, verifiers=map(verifier_to_proto, verifiers), **more)
        return (await self.stub.SetUser(request, timeout=CALL)).revision

    async def delete(self, name: str) -> int:
        return (await self.stub.DeleteUser(users.DeleteUserRequest(user=name), timeout=CALL)).revision

    async def restore(self, name: str) -> int:
        return (await self.stub.RestoreUser(users.RestoreUserRequest(user=name), timeout=CALL)).revision

    async def get(self, name: str, at_revision: int = 0) -> users.GetUserResponse:
        return await self.stub.GetUser(users.GetUserRequest(user=name, at_revision=at_revision), timeout=CALL)

    async def names(self, at_revision: int = 0) -> list[str]:
        answer = await self.stub.ListUsers(users.ListUsersRequest(at_revision=at_revision), timeout=CALL)
        return [each.name for each in answer.users]

    def are_in(self, *texts: bytes) -> bool:
        """Whether any of these texts has a secret, as bytes, hexadecimal digits or base64."""
        forms = [form for each in self.secrets for form in (each, each.hex().encode(), base64.b64encode(each))]
        return any(form in text for form in forms for text in texts)


def everything(database: str) -> dict[str, bytes]:
    """All rows of each table, as PostgreSQL writes them."""
    with psycopg.connect(database) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
        return {
            name: b"\n".join(row[0].encode() for row in connection.execute(f'select t::text from "{name}" t'))
            for (name,) in tables
        }


def stored(database: str, name: str) -> list[Verifier]:
    with psycopg.connect(database) as connection:
        row = connection.execute("select body from user_verifiers where name = %s", (name,)).fetchone()
    return [] if row is None else list(map(verifier_from_proto, users.ScramVerifiers.FromString(row[0]).verifiers))


async def test_a_user_is_set_listed_explained_deleted_and_brought_back(world: World, database: str) -> None:
    callers = Users(world)
    first = await callers.set("shop", reason="a new service")
    await callers.set("bob")
    assert await callers.names() == ["bob", "shop"]
    [old, _] = stored(database, "shop")
    assert old.is_of(PASSWORD)
    assert "by SCRAM-SHA-256 and SCRAM-SHA-512, by decision 1 of" in (await callers.get("shop")).explanation
    gone = await callers.delete("shop")
    assert await callers.names() == ["bob"]
    assert await callers.names(at_revision=first) == ["shop"]
    assert (await callers.get("shop")).user.deleted
    assert "can log in" in (await callers.get("shop", at_revision=first)).explanation
    assert await callers.restore("shop") == gone + 1
    assert stored(database, "shop")[0] == old
    await refused(callers.restore("shop"), FAILED, "is not deleted")
    await refused(callers.delete("eve"), NOT_FOUND, "there is no user eve")
    await refused(callers.get("eve"), NOT_FOUND, "no decision")


async def test_another_password_replaces_the_verifiers_for_good(world: World, database: str) -> None:
    callers = Users(world)
    await callers.set("shop")
    before = stored(database, "shop")
    await callers.set("shop")
    assert len(before) == len(stored(database, "shop")) == 2
    assert not set(before) & set(stored(database, "shop"))


async def test_a_second_call_with_the_same_id_decides_nothing(world: World) -> None:
    callers = Users(world)
    verifier = verifier_to_proto(Verifier.of_password(next(iter(SCRAM_HASHES)), PASSWORD))
    request = users.SetUserRequest(user="shop", verifiers=[verifier], request_id=str(uuid.uuid4()))
    answers = [await callers.stub.SetUser(request, timeout=CALL) for _ in range(2)]
    assert [each.revision for each in answers] == [1, 1]
    assert len(await world.history()) == 1


async def test_verifiers_are_in_one_table_alone(world: World, database: str, capfd: pytest.CaptureFixture[str]) -> None:
    callers = Users(world)
    await callers.set("shop", reason="why", request_id=str(uuid.uuid4()))
    await callers.set("shop")
    await callers.delete("shop")
    await callers.restore("shop")
    wrong = verifier_to_proto(Verifier.of_password(next(iter(SCRAM_HASHES)), PASSWORD, salt=b"salt-of-a-refused-call"))
    callers.secrets += [wrong.salt, wrong.stored_key]
    wrong.iterations = 1
    request = users.SetUserRequest(user="shop", verifiers=[wrong])
    await refused(callers.stub.SetUser(request, timeout=CALL), grpc.StatusCode.INVALID_ARGUMENT, "1 iterations")

    tables = everything(database)
    assert {name for name, rows in tables.items() if callers.are_in(rows)} == {"user_verifiers"}
    answers: list[Message] = [
        *await world.history(),
        await world.decisions.ListHistory(admin.ListHistoryRequest(name="users/shop"), timeout=CALL),
        await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL),
        await callers.stub.ListUsers(users.ListUsersRequest(), timeout=CALL),
        await callers.get("shop"),
    ]
    assert not callers.are_in(*(each.SerializeToString() for each in answers))
    assert not callers.are_in(*(str(each).encode() for each in answers))
    out, err = capfd.readouterr()
    assert not callers.are_in(out.encode(), err.encode())


async def test_history_and_audit_tell_of_users(world: World) -> None:
    callers = Users(world)
    await callers.set("shop", reason="a new service")
    await callers.delete("shop")
    found = await world.decisions.ListHistory(admin.ListHistoryRequest(name="users/shop"), timeout=CALL)
    assert [list(each.changes) for each in found.entries] == [
        ["user shop is deleted"],
        ["user shop logs in by SCRAM-SHA-256 and SCRAM-SHA-512"],
    ]
    audit = await world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    assert [(each.method.rpartition("/")[2], each.resource) for each in audit.audit_events] == [
        ("DeleteUser", "users/shop"),
        ("SetUser", "users/shop"),
    ]


async def test_users_survive_a_restart_and_the_log_is_whole(world: World) -> None:
    callers = Users(world)
    await callers.set("shop")
    await callers.set("bob")
    await callers.delete("bob")
    await world.stop()
    await world.start()
    callers = Users(world)
    assert await callers.names() == ["shop"]
    restored = await callers.restore("bob")
    await world.published(restored)
    report = await asyncio.to_thread(checked, world)
    assert not report.differences
    assert report.published == report.events
    told = await asyncio.to_thread(log_in_kafka, world.home, world.settings.events_topic, report.events)
    assert not callers.are_in(*(each.SerializeToString() for each in told))


async def test_verifiers_of_users_who_were_deleted_long_ago_are_forgotten(world: World, database: str) -> None:
    callers = Users(world)
    for name in ("old", "new", "present"):
        await callers.set(name)
    await callers.delete("old")
    await callers.delete("new")
    with psycopg.connect(database) as connection:
        long_ago = datetime.now(UTC) - DELETED_KEPT - timedelta(minutes=1)
        connection.execute("update user_verifiers set time = %s where name = 'old'", (long_ago,))
    store = Database(database)
    try:
        await UserVerifiers(store).forget_deleted()
    finally:
        await store.close()
    await refused(callers.restore("old"), FAILED, "set the user again")
    await callers.restore("new")
    assert stored(database, "present")


async def test_a_frozen_mesh_still_deletes_users(world: World) -> None:
    callers = Users(world)
    await callers.set("shop")
    await world.changes.Freeze(admin.FreezeRequest(reason="a quiet week"), timeout=CALL)
    await refused(callers.set("bob"), FAILED, "changes are refused")
    await callers.delete("shop")
    assert [each.WhichOneof("payload") for each in await world.history()] == ["user_deleted", "mesh_frozen", "user_set"]


# --- verifiers for routers --------------------------------------------------------------------------------------------


class Following:
    """A router's stream of verifiers."""

    def __init__(self, channel: grpc.aio.Channel, known: UserTable | None = None) -> None:
        self.call = users_grpc.UserVerifierServiceStub(channel).FollowVerifiers()
        self._reader = PageReader(known)

    async def next(self) -> UserTable:
        """The next table, which may be the same one, confirmed."""
        while True:
            page = await self.call.read()
            assert isinstance(page, users.UserTablePage)
            table = self._reader.take(page)
            if table is not None:
                return table

    async def at(self, edition: int) -> UserTable:
        async with asyncio.timeout(WITHIN):
            while (table := await self.next()).edition < edition:
                pass
        return table


async def test_a_router_gets_all_verifiers_then_each_change_and_is_told_that_nothing_changes(
    world: World, database: str
) -> None:
    callers, stream = Users(world), Following(world.channel)
    empty = await stream.next()
    assert (empty.edition, dict(empty.users.by_name)) == (0, {})
    await callers.set("shop")
    table = await stream.at(await callers.set("bob"))
    assert {name: sorted(each.values(), key=str) for name, each in table.users.by_name.items()} == {
        name: sorted(stored(database, name), key=str) for name in ("shop", "bob")
    }
    assert await stream.next() is table, "confirmed"
    assert sorted((await stream.at(await callers.delete("shop"))).users.by_name) == ["bob"]
    last = await stream.at(await callers.restore("shop"))
    assert last.users.find("shop", next(iter(SCRAM_HASHES))) == table.users.find("shop", next(iter(SCRAM_HASHES)))
    whole = await Following(world.channel).next()
    assert whole == last
    assert whole.users.decoy_secret == empty.users.decoy_secret, "the same for all gateways"


async def test_the_edition_is_the_last_decision_about_a_user_and_never_goes_back(world: World, database: str) -> None:
    callers = Users(world)
    await callers.set("shop")
    await callers.set("bob")
    gone = await callers.delete("bob")
    with psycopg.connect(database) as connection:
        connection.execute("delete from user_verifiers where name = 'bob'")  # forgotten after 30 days
    await world.changes.Freeze(admin.FreezeRequest(reason="another decision"), timeout=CALL)
    assert (await Following(world.channel).next()).edition == gone
    await world.stop()
    await world.start()
    assert (await Following(world.channel).next()).edition == gone


async def test_users_of_the_log_without_verifiers_keep_those_that_gateways_have_and_can_be_deleted(
    world: World, database: str
) -> None:
    """The log was restored, and the table of verifiers was not."""
    callers = Users(world)
    for name in ("shop", "bob", "stolen"):
        edition = await callers.set(name)
    before = await Following(world.channel).at(edition)
    with psycopg.connect(database) as connection:
        connection.execute("delete from user_verifiers where name in ('shop', 'stolen')")

    stream, newcomer = Following(world.channel, before), Following(world.channel)
    assert (await stream.next()).users == before.users
    table = await newcomer.next()
    assert (sorted(table.users.by_name), table.lost) == (["bob"], frozenset({"shop", "stolen"}))
    (problem,) = (await world.status()).problems
    assert problem.startswith("verifiers of users are lost: PostgreSQL has none for 2 of them, first 'shop'")
    assert not callers.are_in(problem.encode())

    gone = await callers.delete("stolen")
    assert sorted((await stream.at(gone)).users.by_name) == ["bob", "shop"]
    assert (await newcomer.at(gone)).lost == {"shop"}
    again = await callers.set("shop")
    assert sorted((await stream.at(again)).users.by_name) == ["bob", "shop"]
    table = await newcomer.at(again)
    assert (sorted(table.users.by_name), table.lost) == (["bob", "shop"], frozenset())
    assert not (await world.status()).problems


async def test_a_control_that_does_not_lead_sends_no_verifiers(world: World) -> None:
    stream = Following(world.channel)
    await stream.next()
    world.control.journal.why_not_leading = "another control leads"
    with pytest.raises(grpc.aio.AioRpcError, match="another control leads"):
        while True:
            await stream.next()
    await refused(Following(world.channel).call.read(), grpc.StatusCode.UNAVAILABLE, "another control leads")
