"""`meshctl topic move`: a topic moves with its records under load, there and back, and no client notices."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World
from tests.fixtures.meshes import Mesh
from tests.fixtures.own_meshes import own_mesh, own_world  # noqa: F401

WITHIN_S = 60
LONGEST_PAUSE_MS = 1000
PARTITIONS = 3


async def moved(mesh: Mesh, *arguments: str) -> dict[str, Any]:
    """A move that has ended well."""
    command = ("topic", "move", *arguments, "--wait", "-o", "json", "--timeout", str(WITHIN_S))
    run = await asyncio.to_thread(mesh.meshctl, *command)
    found: dict[str, Any] = json.loads(run.stdout)
    assert found["state"] == "TOPIC_MOVE_STATE_DONE", found
    assert 0 < found["pause_ms"] <= LONGEST_PAUSE_MS
    return found


async def test_a_topic_moves_with_its_records_and_back(own_mesh: Mesh, own_world: World) -> None:  # noqa: F811
    world = own_world
    assert world.operator is not None
    world.operator.route_prefix("c1-", "c1")
    topic, _ = await world.topic_on_each(PARTITIONS)
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    try:
        there = await moved(own_mesh, topic, "--to", "c2")
        await load.progress()
        on_c1 = await world.c1.read(topic)
        back = await moved(own_mesh, "undo", there["name"])
        await load.progress()
        assert len(await world.c1.read(topic)) > len(on_c1)
        again = await moved(own_mesh, topic, "--to", "c2")
        await load.progress()
    finally:
        await load.stop()
    await load.check([world.c2])
    assert there["cuts"][0]["end"] < back["cuts"][0]["end"] < again["cuts"][0]["end"]
