"""Parts of the mesh and whole clusters are killed at random, one after the other, while clients run and topics move.

`MESH_SOAK_S` bounds it; `MESH_SEED`, which it prints, repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World
from tests.fixtures.meshes import Mesh
from tests.fixtures.own_meshes import moved_when_healed

RECORDS_PER_SECOND = 200  # of each producer: several batches are in flight at any moment
SOAK_S = float(os.environ.get("MESH_SOAK_S", "300"))
SEED = int(os.environ.get("MESH_SEED", random.SystemRandom().randrange(2**32)))
PARTITIONS = 6
PARTS = ("control", "postgres", "router", "gateway", "kafka-c1", "kafka-c2")
GROUP_HOME = "c1"
"""Where the group begins and stays: its members can't commit while that cluster is away, as on any Kafka."""
CRASHES = 4
"""The most crashes of the gateway that its supervisor mends. The supervisor waits twice as long each time, 30 s in the
end. The test mends later crashes."""
MOVES = 0.5
"""Of the kills, the part that is followed by a move of the topic."""


@pytest.mark.timeout(SOAK_S + 600)
async def test_records_outlive_parts_that_are_killed_at_random(own_mesh: Mesh, own_world: World) -> None:
    print(f"MESH_SEED={SEED}")
    chance = random.Random(SEED)
    assert own_world.operator is not None
    topic, owner = await own_world.topic_on_both(PARTITIONS), GROUP_HOME
    await own_world.operator.move(topic, owner)
    load = await TopicUnderLoad.start(own_world.bootstrap, topic, own_world.name("group"), rate=RECORDS_PER_SECOND)
    killed: list[str] = []
    try:
        load.expect_absent_clusters()
        until = time.monotonic() + SOAK_S
        while time.monotonic() < until:
            killed.append(part := chance.choice(PARTS))
            if part == "gateway" and killed.count(part) <= CRASHES:
                own_mesh.crash(part)
            else:
                own_mesh.kill(part)
                if part not in ("gateway", f"kafka-{owner}", f"kafka-{GROUP_HOME}"):
                    await load.progress()
                own_mesh.start(part)
            await load.progress()
            if chance.random() < MOVES:
                owner = "c2" if owner == "c1" else "c1"
                await moved_when_healed(own_world, topic, owner)
                await load.progress()
        await load.check([own_world.c1, own_world.c2])
    except AssertionError as error:
        error.add_note(f"MESH_SEED={SEED}, killed so far: {', '.join(killed)}")
        raise
    finally:
        await load.stop()
    print(f"killed: {', '.join(killed)}; {len(load.acked)} records acknowledged")
