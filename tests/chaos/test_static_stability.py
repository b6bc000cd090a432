"""Static stability: parts of the mesh are killed under load. Traffic goes on, and each part that comes back heals.

The load is that of the rule-change test: idempotent producers (Java, librdkafka) and a group with a member of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from local.layout import STATE_FOLDER
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import Addresses, World
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

PARTITIONS = 3
HEAL_S = 60.0
RETRY_S = 0.2


@pytest.fixture(scope="module")
def own_mesh(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh of this module's own: its parts are taken away."""
    with running_mesh(tmp_path_factory.mktemp("chaos") / STATE_FOLDER) as mesh:
        yield mesh


@pytest.fixture
async def world(own_mesh: Mesh) -> AsyncIterator[World]:
    where = Addresses(own_mesh.gateway, own_mesh.control, own_mesh.cluster("c1"), own_mesh.cluster("c2"))
    world = World.at(where)
    yield world
    await world.clean_up()


@pytest.fixture
async def load(world: World) -> AsyncIterator[TopicUnderLoad]:
    """A topic under load on c1 that c2 has too."""
    assert world.operator is not None
    topic = await world.topic_on_both(PARTITIONS)
    await world.operator.move(topic, "c1")
    load = await TopicUnderLoad.start(world.bootstrap, topic, world.name("group"))
    yield load
    await load.stop()


async def moved_when_healed(world: World, topic: str, cluster: str) -> None:
    """The operator moves the topic as soon as the mesh decides again; until then it says that it can't."""
    assert world.operator is not None
    async with asyncio.timeout(HEAL_S):
        while True:
            try:
                await world.operator.move(topic, cluster)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                await asyncio.sleep(RETRY_S)
            else:
                return


@pytest.mark.parametrize("part", ["control", "postgres", "router"])
async def test_traffic_goes_on_without_a_part_that_decides(
    own_mesh: Mesh, world: World, load: TopicUnderLoad, part: str
) -> None:
    own_mesh.kill(part)
    await load.progress()

    own_mesh.start(part)
    await moved_when_healed(world, load.topic, "c2")
    await load.progress()
    await load.check([world.c1, world.c2])


async def test_a_gateway_restarts_without_anybody_who_decides(
    own_mesh: Mesh, world: World, load: TopicUnderLoad
) -> None:
    parts = ("router", "control", "postgres")
    for part in parts:
        own_mesh.kill(part)

    load.expect_lost_connections()
    own_mesh.crash("gateway")
    await load.progress()

    for part in reversed(parts):
        own_mesh.start(part)
    await moved_when_healed(world, load.topic, "c2")
    await load.progress()
    await load.check([world.c1, world.c2])


async def test_one_cluster_gone_leaves_the_others_topics_as_they_were(
    own_mesh: Mesh, world: World, load: TopicUnderLoad
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
    await load.check([world.c1, world.c2])
