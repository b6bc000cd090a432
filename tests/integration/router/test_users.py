"""Users with their verifiers, from a scripted control over a real router to gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from mesh import durations
from mesh.connection_security import Mechanism
from mesh.rpc import users as pb
from mesh.rpc import users_grpc
from mesh.rpc.channels import open_channel
from mesh.rpc.server import RpcServer
from mesh.scram import Verifier
from mesh.user_files import Users
from mesh.user_tables import MOST_USERS, PAGE, PageReader, UserTable, pages
from tests.fixtures.waiting import until
from tests.integration.router.conftest import StartRouter
from tests.integration.router.parts import WITHIN_S, PublishedLog, ServiceProcess

SECRET = b"d" * 32
KEY = b"never in a log, 32 bytes of key."
VERIFIER = {Mechanism.SCRAM_SHA_256: Verifier(Mechanism.SCRAM_SHA_256, b"salt", 4096, KEY, KEY)}
NAME = pb.DESCRIPTOR.services_by_name["UserVerifierService"].full_name


def table(edition: int, *names: str) -> UserTable:
    return UserTable(edition, Users(dict.fromkeys(names, VERIFIER), SECRET))


class ScriptedControl(users_grpc.UserVerifierServiceServicer):
    """Sends what the test puts into `pages`."""

    def __init__(self) -> None:
        self.pages: asyncio.Queue[pb.UserTablePage | None] = asyncio.Queue()
        self.streams = 0

    async def FollowVerifiers(self, request_iterator: Any, context: Any) -> AsyncIterator[pb.UserTablePage]:
        self.streams += 1
        while (page := await self.pages.get()) is not None:
            yield page

    def sends(self, sent: Iterable[pb.UserTablePage | None]) -> None:
        for page in sent:
            self.pages.put_nowait(page)


@asynccontextmanager
async def scripted_control(port: int) -> AsyncIterator[ScriptedControl]:
    control = ScriptedControl()
    server = RpcServer(
        f"127.0.0.1:{port}", {NAME: lambda it: users_grpc.add_UserVerifierServiceServicer_to_server(control, it)}
    )
    await server.start()
    try:
        yield control
    finally:
        await server.stop(0)


class Gateway:
    """A gateway's stream of users."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.sizes: list[int] = []
        """The number of users in each page."""
        self.ages_ms: list[int] = []
        self._call = users_grpc.UserDiscoveryServiceStub(channel).FollowUsers()
        self._reader = PageReader()

    async def next(self) -> UserTable:
        async with asyncio.timeout(WITHIN_S):
            while True:
                page = await self._call.read()
                assert isinstance(page, pb.UserTablePage)
                self.sizes.append(len(page.users))
                self.ages_ms.append(durations.whole_ms(page.age))
                table = self._reader.take(page)
                if table is not None:
                    return table


@asynccontextmanager
async def gateway_at(router: ServiceProcess) -> AsyncIterator[Gateway]:
    async with open_channel(router.address) as channel:
        yield Gateway(channel)


async def test_each_gateway_gets_all_users_then_changes_alone(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    names = [f"user-{n}" for n in range(MOST_USERS)]
    first, second = table(7, *names), table(8, *names[1:])
    async with scripted_control(control_port) as control:
        router = await asyncio.to_thread(start_router, "r1")
        async with gateway_at(router) as early, gateway_at(router) as late:
            control.sends(first.pages())
            assert await early.next() == first
            control.sends(second.changes_since(first))
            assert await early.next() == second
            assert early.sizes == [PAGE] * 10 + [1]
            while await late.next() != second:
                pass
            control.sends(pages(8, []))
            assert (await early.next()).edition == 8
            assert early.sizes[-1] == 0
        assert router.metric("users ") == MOST_USERS - 1
    assert KEY not in router.log_file.read_bytes()


async def test_a_gateway_that_comes_while_control_is_away_gets_the_last_users_with_their_age(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    async with scripted_control(control_port) as control:
        router = await asyncio.to_thread(start_router, "r1")
        control.sends(table(7, "shop").pages())
        async with gateway_at(router) as gateway:
            assert await gateway.next() == table(7, "shop")
    await until(lambda: router.metric("users_age_seconds") > 1, "control has been away for a second", WITHIN_S)
    async with gateway_at(router) as gateway:
        assert await gateway.next() == table(7, "shop")
        assert gateway.ages_ms[0] > 1000
        async with scripted_control(control_port) as control:
            control.sends(table(9, "bob").pages())
            assert await gateway.next() == table(9, "bob")
            assert gateway.ages_ms[-1] < gateway.ages_ms[0]


async def test_users_that_cannot_be_used_are_refused_and_the_last_ones_stay(
    log: PublishedLog, start_router: StartRouter, control_port: int
) -> None:
    log.publish()
    [bad] = table(8, "shop", "bob").pages()
    bad.users[1].verifiers[0].iterations = 1
    async with scripted_control(control_port) as control:
        router = await asyncio.to_thread(start_router, "r1")
        async with gateway_at(router) as gateway:
            control.sends(table(7, "shop").pages())
            assert await gateway.next() == table(7, "shop")
            control.sends([bad])
            await until(lambda: control.streams == 2, "the router asks again", WITHIN_S)
            control.sends(table(9, "carol").pages())
            assert await gateway.next() == table(9, "carol")
    logged = router.log_file.read_text()
    assert "control has sent user 'bob': 1 iterations" in logged
    assert KEY.decode() not in logged
