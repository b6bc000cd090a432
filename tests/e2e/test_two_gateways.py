"""Two gateways and two routers: a topic moves on both gateways together, and no part of a pair is missed for long.

The load is that of the rule-change test, spread: each gateway has one producer and one member of the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from local.layout import STATE_FOLDER
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import Addresses, World
from tests.fixtures.freezing import frozen
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

PARTITIONS = 4
CHANGE_LANDS_S = 60.0  # with one router gone: the time to notice it, to connect to the other one, and the change
ABORT_S = 25.0  # the hold's bound of 5 s, and the way back, before the operator gives up
HEAL_S = 60.0


@pytest.fixture(scope="module")
def own_mesh(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(
        tmp_path_factory.mktemp("pairs") / STATE_FOLDER, "--gateways", "2", "--routers", "2", formatted=True
    ) as mesh:
        yield mesh


@pytest.fixture
async def world(own_mesh: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(own_mesh))
    yield world
    await world.clean_up()


@pytest.fixture
async def load(own_mesh: Mesh, world: World) -> AsyncIterator[TopicUnderLoad]:
    """A topic on c1 that c2 has too, under load through both gateways."""
    assert world.operator is not None
    topic = await world.topic_on_both(PARTITIONS)
    await world.operator.move(topic, "c1")
    other = own_mesh.endpoints["gateway-2"]
    load = await TopicUnderLoad.start(own_mesh.gateway, topic, world.name("group"), other=other)
    yield load
    await load.stop()


async def test_a_topic_moves_on_both_gateways_together(world: World, load: TopicUnderLoad) -> None:
    assert world.operator is not None
    milestones = [("c1", await load.progress())]
    for cluster in ("c2", "c1"):
        await world.operator.move(load.topic, cluster)
        milestones.append((cluster, await load.progress()))

    stored = await load.check([world.c1, world.c2])

    for cluster, last_records in milestones:
        assert {stored[identifier].cluster for identifier in last_records.values()} == {cluster}


@pytest.mark.parametrize("router", ["router", pytest.param("router-2", marks=pytest.mark.soak)])
async def test_one_of_two_routers_is_not_missed(
    own_mesh: Mesh, world: World, load: TopicUnderLoad, router: str
) -> None:
    assert world.operator is not None
    own_mesh.kill(router)
    try:
        await load.progress()
        async with asyncio.timeout(CHANGE_LANDS_S):
            await moved(world, load.topic, "c2")
        last_records = await load.progress()
    finally:
        own_mesh.start(router)

    stored = await load.check([world.c1, world.c2])

    assert {stored[identifier].cluster for identifier in last_records.values()} == {"c2"}


async def moved(world: World, topic: str, cluster: str) -> None:
    """The operator tries until the mesh decides: a change whose orders went to the killed router is given up."""
    assert world.operator is not None
    while True:
        with contextlib.suppress(grpc.RpcError):
            await world.operator.move(topic, cluster)
            return


async def test_a_gateway_that_can_not_hold_aborts_the_change(
    own_mesh: Mesh, world: World, load: TopicUnderLoad
) -> None:
    assert world.operator is not None
    with frozen(own_mesh.processes()["gateway-2"]["pid"]):
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as refused:
            await world.operator.move(load.topic, "c2")
        took = time.monotonic() - began
        assert refused.value.code() is grpc.StatusCode.ABORTED, refused.value
        assert "gateway-2" in (refused.value.details() or "")
        assert took < ABORT_S
        await more_through_the_first_gateway(load)
    assert "gateway-2" in own_mesh.meshctl("history", "-n", "3").stdout

    last_records = await load.progress()
    await asyncio.to_thread(wait_until, lambda: is_healed(own_mesh), "both gateways are in order", HEAL_S)
    await world.operator.move(load.topic, "c2")
    last_records_on_c2 = await load.progress()
    stored = await load.check([world.c1, world.c2])

    assert {stored[identifier].cluster for identifier in last_records.values()} == {"c1"}
    assert {stored[identifier].cluster for identifier in last_records_on_c2.values()} == {"c2"}


async def more_through_the_first_gateway(load: TopicUnderLoad) -> None:
    """Its producer, the Java one, gets on under the old table."""
    before = acked_by_java(load)
    wanted = before + 200
    await asyncio.to_thread(wait_until, lambda: acked_by_java(load) >= wanted, f"{wanted} records of the Java producer")


def acked_by_java(load: TopicUnderLoad) -> int:
    return sum(ack.id.startswith("java") for ack in load.acked)


def is_healed(mesh: Mesh) -> bool:
    rows = [line.split() for line in mesh.meshctl("status").stdout.splitlines() if line.startswith("gateway-")]
    return [(row[0], row[4]) for row in rows] == [("gateway-1", "applied"), ("gateway-2", "applied")]
