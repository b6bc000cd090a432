"""Control with more sidecars than it once served calls; each keeps two streams open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from prometheus_client import REGISTRY

from mesh.rpc import events, instances, instances_grpc, replays, replays_grpc
from mesh.rpc.channels import open_channel
from tests.integration.control.sidecar import ELDER, Orders, place
from tests.integration.control.world import World, until

SIDECARS = 1200
PER_CHANNEL = 100
HEALTH = events.SidecarCommand(check_health=events.CheckHealth())


def followers_known() -> float | None:
    return REGISTRY.get_sample_value("kafka_mesh_control_order_followers")


@pytest.fixture
async def followers(world: World) -> AsyncIterator[list[Any]]:
    """The streams of orders of all sidecars, s0 first. Streams of replays are open, too."""
    async with AsyncExitStack() as ending:
        orders: list[Any] = []
        for first in range(0, SIDECARS, PER_CHANNEL):
            channel = open_channel(f"127.0.0.1:{world.control.port}")
            ending.push_async_callback(channel.close)
            for number in range(first, first + PER_CHANNEL):
                order = instances.FollowOrdersRequest(sidecar=f"s{number}", incarnation=ELDER)
                replay = replays.FollowReplaysRequest(member=f"s{number}", incarnation=ELDER)
                orders.append(instances_grpc.InstanceServiceStub(channel).FollowOrders(order))
                replays_grpc.ReplayServiceStub(channel).FollowReplays(replay)
            await until(lambda: followers_known() == len(orders), "all sidecars so far follow their orders")
        yield orders


async def test_an_operator_is_answered_and_the_last_of_very_many_sidecars_gets_its_order(
    world: World, followers: list[Any]
) -> None:
    assert (await world.status()).members == []
    placed = await place(world, f"members/s{SIDECARS - 1}", command=HEALTH, wait=None)
    assert (await Orders(followers[-1]).next()).name == placed.name
    assert not any(each.done() for each in followers)
