"""Real gateways and a real router: one gateway is cut off from it while a topic moves, or stops, or is killed."""

from __future__ import annotations

import asyncio
import signal

import grpc

from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import refused


async def test_one_that_is_cut_off_serves_moved_topics_until_it_hears(gateways: GatewayPair) -> None:
    world, topic = gateways.world, gateways.topic
    await gateways.produce(gateways.g2, "before")
    await gateways.cable.cut()
    await gateways.is_left_behind("g2")
    await refused(world.set(topic, "c2"), grpc.StatusCode.ABORTED, "g2 has not been heard of", "Nothing was changed")

    moved = await world.set(topic, "c2", without_members=["g2"])
    assert ["'g2' was left behind" in warning for warning in moved.warnings] == [True]
    await gateways.produce(gateways.g1, "moved")
    await gateways.produce(gateways.g2, "left behind")
    assert await gateways.records("c1") == ["before", "left behind"]
    assert await gateways.records("c2") == ["moved"]
    behind = await gateways.member("g2")
    assert behind is not None
    assert (behind.left_behind, behind.revision < moved.revision) == (True, True)

    await gateways.cable.mend()
    await gateways.runs("g2", moved.revision)
    await gateways.produce(gateways.g2, "heard")
    assert await gateways.records("c1") == ["before", "left behind"]
    assert await gateways.records("c2") == ["moved", "heard"]
    assert list((await world.set(topic, "c1")).warnings) == []


async def test_one_that_stops_in_order_is_not_waited_for_and_one_that_is_killed_is(gateways: GatewayPair) -> None:
    world, topic = gateways.world, gateways.topic
    await asyncio.to_thread(gateways.g2.stop)
    await gateways.is_gone("g2")
    assert list((await world.set(topic, "c2")).warnings) == []
    await gateways.starts(gateways.g2)  # the table on its disk is from before the move
    await gateways.produce(gateways.g2, "first of all")
    assert (await gateways.records("c1"), await gateways.records("c2")) == ([], ["first of all"])

    await asyncio.to_thread(gateways.g1.stop, signal.SIGKILL)
    await gateways.is_left_behind("g1")
    await refused(world.set(topic, "c1"), grpc.StatusCode.ABORTED, "g1 has not been heard of")
    await gateways.starts(gateways.g1)  # as its supervisor does: under the same name
    await gateways.runs("g1", world.control.journal.view.state.effective.revision)
    assert list((await world.set(topic, "c1")).warnings) == []
