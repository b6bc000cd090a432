"""`meshctl topic move`, as it is by default: the log is stitched, copied whole, and is one topic again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from local.layout import STATE_FOLDER
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.world import Addresses, World
from tests.e2e.test_stitched_moves import check_one_log, parts
from tests.e2e.test_topic_moves import Reader, on_c1
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.topic_moves import BUDGET, WITHIN_S, certified, ended, of_moves
from tests.fixtures.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

CLIENTS = ("java-4.4", "confluent", "aiokafka")


@pytest.fixture(scope="module")
def two_gateways(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("behind") / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        yield mesh


@pytest.fixture
async def world(two_gateways: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(two_gateways))
    yield world
    await world.clean_up()


async def test_a_topic_moves_whole_behind_a_stitch_and_back_with_new_records(two_gateways: Mesh, world: World) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    reader = Reader(mesh.endpoints["gateway-2"], topic, world.name("reader"))
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    try:
        with reader.running():
            there = await asyncio.to_thread(ended, mesh, of_moves(mesh, topic, "--to", "c2", *BUDGET))
            await load.progress()
            certified(mesh, there)
            back = await asyncio.to_thread(ended, mesh, of_moves(mesh, "undo", there["name"]))
            await load.progress()
            await load.stop()
            await asyncio.to_thread(
                wait_until, lambda: len(reader.read) >= len(load.acked), "the reader has read all", WITHIN_S
            )
    finally:
        await load.stop()
    assert not load.errors
    for move in (there, back):
        assert move["spec"]["kind"] == "TOPIC_MOVE_KIND_STITCH_THEN_COPY", move
        assert move["stitch"]["cuts"]
        certified(mesh, move)
        mesh.meshctl("topic", "move", "verify", move["name"])
    assert parts(mesh, topic) == ["c1"]
    records = [(each.partition, each.offset, each.value.encode()) for each in await world.c1.read(topic)]
    check_one_log(sorted(records, key=lambda each: each[:2]), load.acked)
    assert sorted(reader.read) == sorted(records), "a reader that goes on reads what the cluster has"
