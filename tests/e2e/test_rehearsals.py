"""`meshctl cluster rehearse`: a candidate gets the load of a topic, and then the topic moves there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from local.layout import STATE_FOLDER
from mesh.rehearsals.words import candidate_topic
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.clients.world import Addresses, World
from tests.e2e.test_topic_moves import on_c1
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.topic_moves import BUDGET, WITHIN_S, certified, ended, of_moves
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import topics_of

pytestmark = pytest.mark.timeout(400)

CLIENTS = ("java-4.4", "confluent")


@pytest.fixture(scope="module")
def two_gateways(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("rehearsed") / STATE_FOLDER, "--gateways", "2", formatted=True) as mesh:
        yield mesh


@pytest.fixture
async def world(two_gateways: Mesh) -> AsyncIterator[World]:
    world = World.at(Addresses.of(two_gateways))
    yield world
    await world.clean_up()


def rehearsed(mesh: Mesh, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(mesh.meshctl("cluster", "rehearse", "c2", *arguments, "-o", "json").stdout)
    return found


def stored(found: dict[str, Any], cluster: str) -> int:
    return sum(int(each.get("stored", 0)) for each in found.get("figures", ()) if each["cluster_name"] == cluster)


async def test_a_cluster_is_rehearsed_under_load_and_then_the_topic_moves_there(
    two_gateways: Mesh, world: World
) -> None:
    mesh = two_gateways
    topic = await on_c1(world)
    load = await TopicUnderLoad.start_of(world.bootstrap, topic, world.name("group"), CLIENTS)
    try:
        plan = await asyncio.to_thread(rehearsed, mesh, "--topics", topic, "--share", "100%", "--dry-run")
        assert [each["topic"] for each in plan["topics"]] == [topic]
        await asyncio.to_thread(rehearsed, mesh, "--topics", topic, "--share", "100%", "--for", "10m")
        assert candidate_topic(topic) in topics_of(mesh.cluster("c2"))
        await asyncio.to_thread(
            wait_until, lambda: stored(rehearsed(mesh), "c2") > 100 and stored(rehearsed(mesh), "c1") > 100,
            "figures of both clusters are there", WITHIN_S,
        )  # fmt: skip
        shown = (await asyncio.to_thread(mesh.meshctl, "cluster", "rehearse", "c2")).stdout
        assert "c2 answered " in shown
        assert " produces, p99 " in shown
        assert "(c1: " in shown
        copies = await Upstream("c2", mesh.cluster("c2")).read(candidate_topic(topic))
        assert {each.value for each in copies} <= {each.value for each in await world.c1.read(topic)}
        end = await asyncio.to_thread(rehearsed, mesh, "--end")
        assert stored(end, "c2") > 100
        await asyncio.to_thread(
            wait_until,
            lambda: candidate_topic(topic) not in topics_of(mesh.cluster("c2")),
            "its topic is gone",
            WITHIN_S,
        )
        await load.progress()
        move = await asyncio.to_thread(ended, mesh, of_moves(mesh, topic, "--to", "c2", *BUDGET))
        await load.progress()
    finally:
        await load.stop()
    assert not load.errors
    await asyncio.to_thread(certified, mesh, move)
    history = (await asyncio.to_thread(mesh.meshctl, "history")).stdout
    assert "rehearsal" in history
