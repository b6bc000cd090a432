"""One set of clients lives through many moves: each cluster is visited again and again by the same producers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World, addresses

MOVES = 80  # 40 visits to each cluster
PARTITIONS = 6


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World.at(addresses(request))
    yield world
    await world.clean_up()


@pytest.mark.timeout(600)
async def test_the_same_clients_live_through_many_moves(world: World) -> None:
    if world.operator is None:
        pytest.skip("the system under test has no admin API (MESH_TEST_CONTROL)")
    topic = await world.topic_on_both(PARTITIONS)
    await world.operator.move(topic, "c1")
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    try:
        for cluster in itertools.islice(itertools.cycle(("c2", "c1")), MOVES):
            await world.operator.move(topic, cluster)
            await load.progress()
    finally:
        await load.stop()

    await load.check([world.c1, world.c2])
