"""How a gateway starts that has a table on disk: topics may have moved since it stopped, so it asks first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mesh.lifecycle import Lifecycle
from mesh.routing import RoutingTable
from services.gateway.downstream import gateway as starting
from services.gateway.downstream import last_table
from services.gateway.downstream.gateway import Gateway
from services.gateway.settings import GatewaySettings
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.test_discovery import ScriptedRouter, serving

START_S = 15.0


@asynccontextmanager
async def started(folder: Path, router: str) -> AsyncIterator[tuple[Gateway, Lifecycle]]:
    """A gateway that begins to start; the table on disk is revision 1."""
    last_table.save(folder, RoutingTable(1))
    settings = GatewaySettings(listen=(f"127.0.0.1:{free_block(1)}",), router_addresses=(router,), state_dir=folder)
    lifecycle = Lifecycle()
    gateway = Gateway(settings, lifecycle)
    start = asyncio.create_task(gateway.start())
    try:
        yield gateway, lifecycle
        await start
    finally:
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await gateway.stop()


async def test_it_serves_nobody_before_its_router_has_said_what_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_WORD_S", 60.0)  # a busy machine makes the test slower, not wrong
    router = ScriptedRouter()
    async with serving(router) as address, started(tmp_path, address) as (gateway, lifecycle):
        await until(lambda: router.said, within_s=START_S)
        assert (router.said[0].hello.revision, lifecycle.is_ready) == (1, False)
        router.apply(RoutingTable(2))
        await until(lambda: lifecycle.is_ready, within_s=START_S)
        assert gateway.mesh.table.revision == 2


async def test_without_any_router_it_serves_under_the_table_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_WORD_S", 60.0)
    async with started(tmp_path, "127.0.0.1:1") as (gateway, lifecycle):
        await until(lambda: lifecycle.is_ready, within_s=START_S)
        assert gateway.mesh.table.revision == 1


async def test_a_router_that_says_nothing_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_WORD_S", 0.2)
    router = ScriptedRouter()
    async with serving(router) as address, started(tmp_path, address) as (gateway, lifecycle):
        await until(lambda: lifecycle.is_ready, within_s=START_S)
        assert gateway.mesh.table.revision == 1
