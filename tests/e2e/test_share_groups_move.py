"""A topic moves with its records, or without a copy, there and back, while a share group reads it: none is missed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.world import World
from tests.fixtures.meshes import Mesh
from tests.fixtures.topic_moves import BUDGET_MS, certified, ended, of_moves
from tests.integration.gateway.member import Told, run_member
from tests.integration.gateway.records import produce
from tests.integration.gateway.sharing import set_up

COUNT = 40


def batch(number: int) -> set[str]:
    return {f"{number} {n}" for n in range(COUNT)}


@pytest.mark.parametrize(
    "way", [("--copy", "--budget", f"{BUDGET_MS}"), ("--stitch", "--budget", f"{BUDGET_MS}")], ids=["copy", "stitch"]
)
async def test_javas_share_consumers_miss_no_record_of_a_topic_that_moves_there_and_back(
    own_mesh: Mesh, own_world: World, way: tuple[str, ...]
) -> None:
    world = own_world
    assert world.operator is not None
    world.operator.route_prefix("c1-", "c1")
    topic, _ = await world.topic_on_each(2)
    group = world.name("shares")
    await asyncio.to_thread(set_up, world.bootstrap, group)

    with ThreadPoolExecutor(1) as background:
        everything = batch(0) | batch(1) | batch(2)
        await asyncio.to_thread(produce, world.bootstrap, topic, sorted(batch(0)))
        running = background.submit(run_member, "share", world.bootstrap, group, [topic], len(everything))
        there = await asyncio.to_thread(ended, own_mesh, of_moves(own_mesh, topic, "--to", "c2", *way))
        await asyncio.to_thread(produce, world.bootstrap, topic, sorted(batch(1)))
        back = await asyncio.to_thread(ended, own_mesh, of_moves(own_mesh, "undo", there["name"]))
        await asyncio.to_thread(produce, world.bootstrap, topic, sorted(batch(2)))
        told: Told = await asyncio.to_thread(running.result, 120)
    assert set(told.values) == everything
    for move in (there, back):
        certified(own_mesh, move)
