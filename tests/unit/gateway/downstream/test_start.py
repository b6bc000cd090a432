"""How a gateway starts that has a table on disk: topics may have moved since it stopped, so it asks first.

If control waits for the gateway, no topic has moved, and no router is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from mesh.lifecycle import Lifecycle
from mesh.routing import ExactName, ForwardingRule, RoutingTable, RuleVersion, UpstreamCluster
from services.gateway.downstream import gateway as starting
from services.gateway.downstream import last_table
from services.gateway.downstream.awaited import Awaited
from services.gateway.downstream.gateway import Gateway
from services.gateway.requests.records import producer_memory
from services.gateway.settings import GatewaySettings
from services.gateway.wire.apis import ApiKey
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.downstream.test_discovery import ScriptedRouter, left_unanswered, serving
from tests.unit.gateway.downstream.test_order import gated, produce
from tests.unit.gateway.scripted_broker import broker

START_S = 60.0


@asynccontextmanager
async def started(
    folder: Path, *routers: str, awaited: bool = True, **more: Any
) -> AsyncIterator[tuple[Gateway, Lifecycle]]:
    """A gateway that begins to start; the first table on disk is revision 1."""
    if last_table.load(folder) is None:
        last_table.save(folder, RoutingTable(1))
    if awaited:
        Awaited(folder, "g1").write()
    listen = (f"127.0.0.1:{free_block(1)}",)
    settings = GatewaySettings(name="g1", listen=listen, router_addresses=routers, state_dir=folder, **more)
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


async def answers(gateway: Gateway) -> bool:
    """Whether the gateway takes clients."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def test_after_a_goodbye_no_client_is_served_until_a_router_has_sent_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "FIRST_WORD_S", 0.0)
    router = ScriptedRouter()
    async with serving(router) as address, started(tmp_path, address, awaited=False) as (gateway, lifecycle):
        await until(lambda: router.said, within_s=START_S)
        assert (lifecycle.is_ready, await answers(gateway)) == (False, False)
        assert "topics may have moved since revision 1" in lifecycle.reason
        assert outdated() == 1
        router.apply(RoutingTable(2))
        await until(lambda: lifecycle.is_ready, within_s=START_S)
        assert (gateway.mesh.table.revision, await answers(gateway), outdated()) == (2, True, 0)


async def test_a_gateway_that_was_stopped_in_order_waits_for_a_router_at_its_next_start(tmp_path: Path) -> None:
    router = ScriptedRouter()
    async with serving(router) as address, started(tmp_path, address) as (_, lifecycle):
        router.apply(RoutingTable(2))
        await until(lambda: lifecycle.is_ready, within_s=START_S)
        await until(lambda: router.acks, within_s=START_S)
    assert router.said[-1].HasField("goodbye")
    async with started(tmp_path, "127.0.0.1:1", awaited=False) as (gateway, lifecycle):
        await until(lambda: "topics may have moved since revision 2" in lifecycle.reason, within_s=START_S)
        assert not await answers(gateway)
        lifecycle.stop()


async def test_a_gateway_that_waits_for_a_router_stops_at_once_and_serves_nobody(tmp_path: Path) -> None:
    async with started(tmp_path, "127.0.0.1:1", awaited=False) as (gateway, lifecycle):
        await until(lambda: "waits for a router" in lifecycle.reason, within_s=START_S)
        lifecycle.stop()
    assert not gateway.connections
    assert not await answers(gateway)


async def test_without_addresses_of_routers_the_table_on_disk_is_the_only_one(tmp_path: Path) -> None:
    async with started(tmp_path, awaited=False) as (gateway, lifecycle):
        await until(lambda: lifecycle.is_ready, within_s=START_S)
        assert gateway.mesh.table.revision == 1


def outdated() -> float | None:
    return REGISTRY.get_sample_value("kafka_mesh_gateway_table_outdated")


@pytest.mark.parametrize("client_stays", [True, False])
async def test_no_goodbye_is_said_while_records_are_on_their_way(tmp_path: Path, client_stays: bool) -> None:
    """Topics would move without this gateway, and its records would arrive at their last cluster after that."""
    router, gate = ScriptedRouter(), asyncio.Event()
    async with broker({"apples": 1}, {ApiKey.PRODUCE: gated(gate)}) as c1, serving(router) as address:
        rule = RuleVersion(ForwardingRule("apples", ExactName("apples"), "c1"), 0.0, 1)
        table = RoutingTable(1, [UpstreamCluster("c1", (c1.address,), 1)], [rule])
        last_table.save(tmp_path, table)
        router.apply(table)
        async with started(tmp_path, address, drain_timeout_s=0.1) as (gateway, lifecycle):
            await until(lambda: lifecycle.is_ready and router.acks, within_s=START_S)
            client = await RawClient.connect(gateway.port)
            client.send(produce("apples"), 9)
            await until(lambda: c1.requests(ApiKey.PRODUCE), within_s=START_S)
            if not client_stays:
                client.close()
                await until(lambda: not gateway.connections)
        client.close()
    assert not any(said.HasField("goodbye") for said in router.said)


async def test_a_goodbye_waits_until_a_batch_without_an_answer_is_stored_or_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer may repeat the batch through another gateway, which asks the cluster when a topic has moved."""
    monkeypatch.setattr(producer_memory, "SETTLED_SECONDS", 4.0)
    router = ScriptedRouter()
    async with broker({"apples": 1}, {}) as c1, serving(router) as address:
        rule = RuleVersion(ForwardingRule("apples", ExactName("apples"), "c1"), 0.0, 1)
        table = RoutingTable(1, [UpstreamCluster("c1", (c1.address,), 1)], [rule])
        last_table.save(tmp_path, table)
        router.apply(table)
        async with started(tmp_path, address) as (gateway, lifecycle):
            await until(lambda: lifecycle.is_ready and router.acks, within_s=START_S)
            since = await left_unanswered(c1, await RawClient.connect(gateway.port), "apples")
    assert router.said[-1].HasField("goodbye")
    assert asyncio.get_running_loop().time() > since + 3.9
