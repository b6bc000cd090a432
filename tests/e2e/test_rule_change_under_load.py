"""The promise of the mesh: a topic moves between clusters under load, nothing is lost and no client notices.

Producers are idempotent, Java and librdkafka; a group with a member of each reads along. The operator moves the topic
c1, c2, c1, c2, c1: a producer's second visit to a cluster is where its sequences have a gap. `MESH_REPEAT` repeats all.
This is for `make soak`: `test_two_gateways.py` has such a load each time, and `tests/clients` has one of each client.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World, addresses

pytestmark = pytest.mark.soak
REPEAT = int(os.environ.get("MESH_REPEAT", "1"))
MOVES = ("c2", "c1", "c2", "c1")
PARTITIONS = 6


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World.at(addresses(request))
    yield world
    await world.clean_up()


@pytest.mark.parametrize("round_", range(REPEAT))
async def test_a_topic_moves_to_and_fro_under_load(world: World, round_: int) -> None:
    if world.operator is None:
        pytest.skip("the system under test has no admin API (MESH_TEST_CONTROL)")
    topic = await world.topic_on_both(PARTITIONS)
    await world.operator.move(topic, "c1")
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    milestones = [("c1", await load.progress())]
    try:
        for cluster in MOVES:
            await world.operator.move(topic, cluster)
            milestones.append((cluster, await load.progress()))
    finally:
        await load.stop()

    stored = await load.check([world.c1, world.c2])

    for visit, (cluster, last_records) in enumerate(milestones):
        for identifier in last_records.values():
            place = stored[identifier]
            assert place.cluster == cluster, f"{place}: written while the topic lived on {cluster} (visit {visit})"
