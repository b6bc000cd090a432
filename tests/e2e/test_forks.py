"""`meshctl topic fork` under load: the fork has production's past, and production sees nothing, also while it moves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import pytest

from local.layout import STATE_FOLDER
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.clients.world import Addresses, World
from tests.e2e.test_stitched_moves import check_one_log, parts
from tests.e2e.test_topic_moves import on_c1
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.topic_moves import BUDGET, certified, ended, of_moves

pytestmark = pytest.mark.timeout(300)

CLIENTS = ("java-4.4", "confluent")


@pytest.fixture(scope="module")
def two_gateways(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("forked") / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        yield mesh


@pytest.fixture
async def world(two_gateways: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(two_gateways))
    yield world
    await world.clean_up()


async def test_a_fork_has_the_past_and_its_own_records_while_the_topic_is_written_and_moves(
    two_gateways: Mesh, world: World
) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    staging = f"{topic}-staging"
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    tail: TopicUnderLoad | None = None
    try:
        await load.progress()
        made = json.loads(
            (
                await asyncio.to_thread(
                    mesh.meshctl, "topic", "fork", topic, "--as", staging, "--at", "latest", "--to", "c2", "-o", "json"
                )
            ).stdout
        )
        tail = await TopicUnderLoad.start_of(world.bootstrap, staging, world.name("group"), CLIENTS)
        await load.progress()
        move = await asyncio.to_thread(ended, mesh, of_moves(mesh, topic, "--to", "c2", "--stitch", *BUDGET))
        await load.progress()
        await tail.progress()
    finally:
        await load.stop()
        if tail is not None:
            await tail.stop()
    assert not load.errors
    assert not tail.errors
    ends = {each.get("partition", 0): int(each.get("offset", 0)) for each in made["partitions"]}
    production = sorted(
        (each.partition, each.offset, each.value.encode())
        for each in await Upstream("the mesh", world.bootstrap).read(topic)
    )
    check_one_log(production, load.acked)  # so it has no record of the fork
    certified(mesh, move)
    fork = sorted(
        (each.partition, each.offset, each.value.encode())
        for each in await Upstream("the mesh", world.bootstrap).read(staging)
    )
    past = [each for each in production if each[1] < ends[each[0]]]
    assert past
    assert [each for each in fork if each[1] < ends[each[0]]] == past, "the fork has production's past"
    own = [
        (partition, offset - ends[partition], value) for partition, offset, value in fork if offset >= ends[partition]
    ]
    assert {value.decode() for *_, value in own} == {each.id for each in tail.acked}
    for partition in ends:
        offsets = [offset for number, offset, _ in own if number == partition]
        assert offsets == list(range(len(offsets))), "no gap between the past and the fork's own records"
    assert parts(mesh, staging) == ["c1", "c2"]
    assert [
        each["name"] for each in json.loads(mesh.meshctl("topic", "forks", "--of", topic, "-o", "json").stdout)["forks"]
    ] == [f"topics/{staging}"]

    plan = mesh.meshctl("topic", "fork", staging, "--delete", "--dry-run").stderr
    assert f"- stays: topic {topic} on c1" in plan
    assert f"- is deleted: topic {staging} on c2" in plan
    mesh.meshctl("topic", "fork", staging, "--delete", "--yes")
    assert json.loads(mesh.meshctl("topic", "forks", "--of", topic, "-o", "json").stdout).get("forks", []) == []
    left = await Upstream("the mesh", world.bootstrap).read(topic)
    assert len(left) == len(production), "the topic keeps its records"
