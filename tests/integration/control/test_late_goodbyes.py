"""A router stands still while a gateway says goodbye to it, and passes the goodbye on when a new process is there."""

from __future__ import annotations

import asyncio
import time

import grpc

from services.router.agents.follower import LONGEST_SILENCE
from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import refused, until
from tests.integration.router.parts import DataPlane


async def test_the_goodbye_of_the_process_before_does_not_end_the_one_that_runs(gateway_pair: GatewayPair) -> None:
    """The process before is only the gRPC side of a gateway: its stream stays open until the router reads again."""
    await gateway_pair.start(two_routers=True)
    world, topic, members = gateway_pair.world, gateway_pair.topic, gateway_pair.world.control.members
    revision, router = world.control.journal.view.state.effective.revision, gateway_pair.routers[0]
    await asyncio.to_thread(gateway_pair.g1.stop)
    await gateway_pair.is_gone("g1")
    async with DataPlane("g1", router.address) as before:
        await before.expect("apply", revision)
        await before.ack(revision)
        await gateway_pair.runs("g1", revision)
        with router.frozen():
            await before.say_goodbye()
            successor = await gateway_pair.gateway("g1", gateway_pair.cable.address)

            async def is_there() -> bool:
                present = await gateway_pair.member("g1")
                return present is not None and present.process not in ("", before.member.process)

            await until(is_there, "control hears of the new process, by the other router")
            await gateway_pair.cable.cut()
            await gateway_pair.is_left_behind("g2")
            long_enough = time.monotonic() + 2 * LONGEST_SILENCE
            await until(lambda: time.monotonic() > long_enough, "a cluster would count as silent by now")

        def is_passed_on() -> bool:
            goodbye = members._goodbyes.get("members/g1")
            return goodbye is not None and goodbye.process == before.member.process

        await until(is_passed_on, "the router that stood still has passed on the goodbye")
    await gateway_pair.is_left_behind("g1")
    change = world.set(topic, "c2", without_members=["g2"])
    await refused(change, grpc.StatusCode.ABORTED, "g1 has not been heard of")

    await gateway_pair.cable.mend()
    for name in ("g1", "g2"):
        await gateway_pair.runs(name, world.control.journal.view.state.effective.revision)
    assert list((await world.set(topic, "c2")).warnings) == []
    await gateway_pair.produce(successor, "moved")
    assert (await gateway_pair.records("c1"), await gateway_pair.records("c2")) == ([], ["moved"])
    await asyncio.to_thread(successor.stop)
    await gateway_pair.is_gone("g1")
