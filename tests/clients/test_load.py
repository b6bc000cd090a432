"""Idempotent producers and a mixed group on a topic that stays where it is: the ground that tests of moves stand on."""

from __future__ import annotations

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World


async def test_load_on_a_topic_that_stays_balances(world: World) -> None:
    topic, _ = await world.topic_on_each(partitions=6)
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    try:
        await load.progress()
    finally:
        await load.stop()

    stored = await load.check([world.c1])

    assert {record.id for record in load.acked} == set(stored)
