"""One set of clients lives through many moves: each cluster is visited again and again by the same producers.

`MESH_MOVES` says how many moves the producers see.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import AsyncIterator

import pytest

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World, addresses

RECORDS_PER_SECOND = 200  # of each producer: several batches are in flight at any moment
MOVES = 80  # 40 visits to each cluster
MOVES_OF_PRODUCERS = int(os.environ.get("MESH_MOVES", "1000"))
PRODUCERS = ("java-4.4", "confluent", "franz-go", "sarama")
RECORDS_BETWEEN_MOVES = 20  # of each producer: a tenth of a second, with several batches on their way
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
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"), rate=RECORDS_PER_SECOND)
    try:
        for cluster in itertools.islice(itertools.cycle(("c2", "c1")), MOVES):
            await world.operator.move(topic, cluster)
            await load.progress()
    finally:
        await load.stop()

    await load.check([world.c1, world.c2])


@pytest.mark.timeout(3600)
async def test_producers_live_through_a_thousand_moves(world: World) -> None:
    """Without consumers: a log that is read again from its start at each return would soon take all of the machine."""
    if world.operator is None:
        pytest.skip("the system under test has no admin API (MESH_TEST_CONTROL)")
    topic = await world.topic_on_both(PARTITIONS)
    await world.operator.move(topic, "c1")
    start = time.monotonic()
    load = await TopicUnderLoad.start_of(
        world.bootstrap, topic, "", PRODUCERS, consuming=False, rate=RECORDS_PER_SECOND
    )
    try:
        for cluster in itertools.islice(itertools.cycle(("c2", "c1")), MOVES_OF_PRODUCERS):
            await world.operator.move(topic, cluster)
            await load.progress(RECORDS_BETWEEN_MOVES)
    finally:
        await load.stop()
    took = time.monotonic() - start

    stored = await load.check([world.c1, world.c2])  # fails with names where anything failed, was lost or is doubled

    print(
        f"{MOVES_OF_PRODUCERS} moves in {took:.0f} s, {len(load.acked)} records acknowledged by {', '.join(PRODUCERS)}"
    )
    print(f"{len(stored)} stored, failed 0, lost 0, doubled 0, out of order 0")
