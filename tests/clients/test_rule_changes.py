"""A topic moves between clusters under load of each client: nothing fails, nothing is lost, doubled or out of order."""

from __future__ import annotations

import pytest

from tests.clients.contract import Can
from tests.clients.matrix import Feature
from tests.clients.registry import CLIENTS, by_name
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World

MOVES = ("c2", "c1")  # there, and back to a log that the producer has written to
PARTITIONS = 3


@pytest.mark.timeout(400)
@pytest.mark.feature(Feature.RULE_CHANGE)
@pytest.mark.parametrize("name", by_name(CLIENTS))
async def test_a_topic_moves_under_load(name: str, world: World) -> None:
    if name == "kcat":
        pytest.skip("kcat cannot tell which records were delivered")
    if world.operator is None:
        pytest.skip("the system under test has no admin API (MESH_TEST_CONTROL)")
    consuming = Can.CONSUME in CLIENTS[name](world.bootstrap).can
    topic = await world.topic_on_both(PARTITIONS)
    await world.operator.move(topic, "c1")
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), [name], consuming=consuming)
    milestones = [("c1", await load.progress())]
    try:
        for cluster in MOVES:
            await world.operator.move(topic, cluster)
            milestones.append((cluster, await load.progress()))
    finally:
        await load.stop()

    stored = await load.check([world.c1, world.c2])

    for cluster, last_records in milestones:
        for identifier in last_records.values():
            assert stored[identifier].cluster == cluster, (
                f"{stored[identifier]}: written while the topic lived elsewhere"
            )
