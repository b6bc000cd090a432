"""Real gateways whose router stands still as they start: after a goodbye topics have moved, after a crash none has."""

from __future__ import annotations

import asyncio
import signal

import grpc
import pytest

from tests.integration.control.gateway_pair import START_S, GatewayPair
from tests.integration.control.world import refused, until
from tests.integration.router.parts import ServiceProcess


@pytest.fixture
async def gateways(gateway_pair: GatewayPair) -> GatewayPair:
    """Gateway g2 has a router of its own."""
    await gateway_pair.start(two_routers=True)
    return gateway_pair


async def takes_clients(gateway: ServiceProcess) -> bool:
    host, _, port = gateway.address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def test_one_that_said_goodbye_writes_nothing_to_the_cluster_that_its_topic_has_left(
    gateways: GatewayPair,
) -> None:
    world, topic, g2 = gateways.world, gateways.topic, gateways.g2
    await gateways.produce(g2, "before")
    await asyncio.to_thread(g2.stop)
    await gateways.is_gone("g2")
    with gateways.routers[1].frozen():
        assert list((await world.set(topic, "c2")).warnings) == []
        await gateways.produce(gateways.g1, "moved")
        g2.start()
        await until(lambda: "waits for a router: topics may have moved" in g2.ready(), "g2 waits", START_S)
        assert g2.metric("table_outdated") == 1
        assert not await takes_clients(g2)
    await until(lambda: g2.ready() == "ready", "g2 has the table of its router", START_S)
    await gateways.produce(g2, "behind the move")
    assert await gateways.records("c1") == ["before"]
    assert await gateways.records("c2") == ["moved", "behind the move"]


async def test_one_that_was_killed_serves_without_a_router_and_no_topic_moves_meanwhile(gateways: GatewayPair) -> None:
    world, topic, g2 = gateways.world, gateways.topic, gateways.g2
    await asyncio.to_thread(g2.stop, signal.SIGKILL)
    await gateways.is_left_behind("g2")
    with gateways.routers[1].frozen():
        await gateways.starts(g2)
        await gateways.produce(g2, "without a router")
        await refused(world.set(topic, "c2"), grpc.StatusCode.ABORTED, "g2 has not been heard of")
    await gateways.runs("g2", world.control.journal.view.state.effective.revision)
    assert list((await world.set(topic, "c2")).warnings) == []
    await gateways.produce(g2, "moved")
    assert await gateways.records("c1") == ["without a router"]
    assert await gateways.records("c2") == ["moved"]
