"""Several routers: the next one that answers is watched, no table is exchanged for an older one, holds stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mesh.rpc import discovery
from mesh.rpc.server import RpcServer
from services.gateway.downstream import discovery as watch_module
from services.gateway.downstream.routers import CONNECT_TIMEOUT_S, NoRouterError, Routers
from services.gateway.wire.apis import ApiKey
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.test_discovery import APPLIED, HELD, ScriptedRouter, serving, watch_of
from tests.unit.gateway.downstream.test_order import produce, written

NOBODY = "127.0.0.1:1"


@asynccontextmanager
async def mute() -> AsyncIterator[str]:
    """The address of somebody who takes connections, and that is all."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    yield "{}:{}".format(*server.sockets[0].getsockname())
    server.close()


@pytest.fixture
async def two(stage: Stage, tmp_path: Path) -> AsyncIterator[tuple[ScriptedRouter, ScriptedRouter]]:
    """The stage's gateway watches the first of these routers, which has told the table that runs."""
    first, second = ScriptedRouter(), ScriptedRouter()
    async with AsyncExitStack() as servers:
        addresses = [await servers.enter_async_context(serving(router)) for router in (first, second)]
        watch = watch_of(stage, tuple(addresses), tmp_path)
        first.apply(stage.gateway.mesh.table)
        task = asyncio.create_task(watch.run())
        await until(lambda: first.acks)
        yield first, second
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_next_router_is_watched_when_one_goes(
    two: tuple[ScriptedRouter, ScriptedRouter], stage: Stage
) -> None:
    first, second = two
    second.apply(stage.table(2, apples="c2"))
    first.end()
    await until(lambda: second.acks == [(2, APPLIED)])
    assert second.said[0].hello.revision == 1
    first.apply(stage.table(3, apples="c1"))
    second.end()
    await until(lambda: (3, APPLIED) in first.acks)
    assert stage.gateway.mesh.table.revision == 3


async def test_an_older_table_is_refused_and_the_gateway_goes_on(
    two: tuple[ScriptedRouter, ScriptedRouter], stage: Stage
) -> None:
    first, second = two
    newer = stage.table(5, apples="c2")
    first.apply(newer)
    await until(lambda: (5, APPLIED) in first.acks)
    first.end()
    second.apply(stage.table(4, apples="c1"))
    await until(lambda: second.nacks == [(4, "revision 5 runs here already")])
    assert stage.gateway.mesh.table == newer


async def test_a_router_that_has_nothing_to_tell_is_left_for_the_next(
    two: tuple[ScriptedRouter, ScriptedRouter], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "FIRST_PATIENCE_S", 0.05)
    first, second = two
    first.end()
    await until(lambda: second.watches == 1)
    first.apply(stage.table(2, apples="c2"))
    await until(lambda: (2, APPLIED) in first.acks)
    assert first.watches == 2
    assert not second.acks


async def test_a_hold_outlives_its_router_and_the_next_one_ends_it(
    two: tuple[ScriptedRouter, ScriptedRouter], stage: Stage
) -> None:
    first, second = two
    stage.c2.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
    mesh, pending = stage.gateway.mesh, stage.table(2, apples="c2")
    before = mesh.table
    first.hold(pending)
    await until(lambda: (2, HELD) in first.acks)
    client = await stage.connect()
    client.send(produce("apples"), 9)
    (connection,) = stage.gateway.connections
    await until(lambda: connection.unanswered == 1)
    second.apply(before)  # it has not heard of the switch
    first.end()
    await until(lambda: second.acks == [(1, APPLIED)])
    assert mesh.hold is not None
    assert not stage.c1.requests(ApiKey.PRODUCE)
    second.apply(pending)
    await until(lambda: (2, APPLIED) in second.acks)
    await until(lambda: stage.c2.requests(ApiKey.PRODUCE))
    assert stage.gateway.mesh.hold is None
    assert not stage.c1.requests(ApiKey.PRODUCE)


async def test_a_hold_whose_router_is_gone_is_told_to_the_next_one_and_held_again(
    two: tuple[ScriptedRouter, ScriptedRouter], stage: Stage
) -> None:
    first, second = two
    mesh, pending = stage.gateway.mesh, stage.table(2, apples="c2")
    first.hold(pending, hold_ms=1_000)
    await until(lambda: (2, HELD) in first.acks)
    await until(lambda: mesh.hold is not None and mesh.hold.refuses)
    second.apply(mesh.table)
    second.hold(pending)
    first.end()
    await until(lambda: second.acks == [(1, APPLIED), (2, HELD)])
    assert second.said[0].hello.held_revision == 2
    second.orders.put_nowait(discovery.WatchResponse(release=discovery.ReleaseOrder(revision=2)))
    await until(lambda: mesh.hold is None)
    assert mesh.table.revision == 1


async def test_routers_are_taken_in_turn() -> None:
    async with serving(ScriptedRouter()) as one, serving(ScriptedRouter()) as other:
        routers, taken = Routers((one, NOBODY, other)), []
        for _ in range(3):
            async with routers.connected() as router:
                taken.append(router.address)
    assert taken == [one, other, one]


async def test_one_that_does_not_answer_costs_a_head_start() -> None:
    async with (
        mute() as hanging,
        serving(ScriptedRouter()) as address,
        asyncio.timeout(CONNECT_TIMEOUT_S - 0.5),
        Routers((hanging, address)).connected() as router,
    ):
        assert router.address == address


async def test_a_router_that_does_not_know_the_last_decisions_is_taken_when_there_is_no_better_one() -> None:
    behind, better = RpcServer("127.0.0.1:0", {}), RpcServer("127.0.0.1:0", {})
    for server in (behind, better):
        await server.start()
    try:
        routers = Routers((f"127.0.0.1:{behind.port}", f"127.0.0.1:{better.port}"))
        async with routers.connected() as router:
            assert router.address == f"127.0.0.1:{behind.port}"
        await better.set_serving(True)
        for _ in range(2):
            async with routers.connected() as router:
                assert router.address == f"127.0.0.1:{better.port}"
    finally:
        for server in (behind, better):
            await server.stop(0)


async def test_each_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(NoRouterError, match=r"127\.0\.0\.1:1: the connection was refused; 127\.0\.0\.1:2: the conn"):
        async with Routers((NOBODY, "127.0.0.1:2")).connected():
            pass
