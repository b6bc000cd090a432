"""Static stability: parts of the mesh are killed under load. Traffic goes on, and each part that comes back heals.

The load is that of the rule-change test: idempotent producers (Java, librdkafka) and a group with a member of each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import World
from tests.fixtures.meshes import Mesh
from tests.fixtures.own_meshes import HEAL_S, moved_when_healed
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3


@pytest.fixture
async def load(own_world: World) -> AsyncIterator[TopicUnderLoad]:
    """A topic under load on c1 that c2 has too."""
    topic = await own_world.topic_on_both(PARTITIONS)
    await moved_when_healed(own_world, topic, "c1")
    load = await TopicUnderLoad.start(own_world.bootstrap, topic, own_world.name("group"))
    yield load
    await load.stop()


@pytest.mark.parametrize(
    "part", ["control", *(pytest.param(part, marks=pytest.mark.soak) for part in ("postgres", "router"))]
)
async def test_traffic_goes_on_without_a_part_that_decides(
    own_mesh: Mesh, own_world: World, load: TopicUnderLoad, part: str
) -> None:
    own_mesh.kill(part)
    await load.progress()

    own_mesh.start(part)
    await moved_when_healed(own_world, load.topic, "c2")
    await load.progress()
    await load.check([own_world.c1, own_world.c2])


async def test_a_gateway_restarts_without_anybody_who_decides(
    own_mesh: Mesh, own_world: World, load: TopicUnderLoad
) -> None:
    parts = ("router", "control", "postgres")
    for part in parts:
        own_mesh.kill(part)

    load.expect_lost_connections()
    own_mesh.crash("gateway")
    await load.progress()

    for part in reversed(parts):
        own_mesh.start(part)
    await moved_when_healed(own_world, load.topic, "c2")
    await load.progress()
    await load.check([own_world.c1, own_world.c2])


async def test_one_cluster_gone_leaves_the_others_topics_as_they_were(
    own_mesh: Mesh, own_world: World, load: TopicUnderLoad
) -> None:
    own_mesh.kafka_mesh("produce", "bananas", stdin="before\n")
    own_mesh.kill("kafka-c2")
    await load.progress()
    refused = own_mesh.kafka_mesh("produce", "bananas", "--timeout", "3", stdin="lost\n", check=False)
    assert refused.returncode != 0

    own_mesh.start("kafka-c2")

    def c2_is_served() -> bool:
        return own_mesh.kafka_mesh("produce", "bananas", "--timeout", "5", stdin="after\n", check=False).returncode == 0

    wait_until(c2_is_served, "bananas are served again", HEAL_S)
    read = own_mesh.kafka_mesh("consume", "bananas", "--count", "2", "--from-beginning").stdout.split()
    assert sorted(read) == ["after", "before"]
    await load.progress()
    await load.check([own_world.c1, own_world.c2])
