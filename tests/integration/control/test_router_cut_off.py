"""A router loses its link to Kafka, and not to its gateways: these go to the other router, and topics move on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from mesh.rpc import admin
from tests.fixtures.cables import Cable
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.running import running
from tests.fixtures.two_of_everything import WITHIN_S, TwoOfEverything
from tests.fixtures.waiting import until
from tests.fixtures.writers import Writer
from tests.integration.control.world import create_topic
from tests.integration.gateway.records import read_all
from tests.integration.gateway.stored import assert_stored_once

pytestmark = pytest.mark.timeout(400)


class Home(NamedTuple):
    """A home cluster with a listener of its own for one router."""

    cluster: KafkaCluster
    cable: Cable


@pytest.fixture
async def home(kafka_jars: None, tmp_path: Path) -> AsyncIterator[Home]:
    port = free_block(1)
    cable = Cable(f"kafka://127.0.0.1:{port}")
    await cable.mend()
    further = tmp_path / "further.properties"
    cluster = KafkaCluster("home", tmp_path / "home", further)
    own, controller = cluster.bootstrap, int(cluster.bootstrap.rpartition(":")[2]) + 1
    further.write_text(
        f"listeners=PLAINTEXT://{own},CABLE://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"advertised.listeners=PLAINTEXT://{own},CABLE://{cable.address}\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CABLE:PLAINTEXT\n"
        "inter.broker.listener.name=PLAINTEXT\n",
        encoding="ascii",
    )
    with running(cluster):
        yield Home(cluster, cable)
    await cable.cut()


async def test_gateways_leave_a_router_that_is_cut_off_from_kafka_and_moves_go_on(
    home: Home, kafka_c2: KafkaCluster, database: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = unique_name("moving")
    for cluster in (home.cluster, kafka_c2):
        create_topic(cluster.bootstrap, topic, 2)
    mesh = TwoOfEverything(database, home.cluster, kafka_c2, f"{topic}.events", tmp_path, home.cable.address)
    async with mesh:
        await mesh.moves(topic, "c1")
        cut_off, other = mesh.routers
        async with mesh.without_link("g1-router1"):
            await mesh.start_gateways()
            await until(lambda: cut_off.metric("members{") >= 1, "the router has a gateway", WITHIN_S)
        writers = [Writer(name, each.address, topic) for name, each in zip("ab", mesh.gateways, strict=True)]
        try:
            for writer in writers:
                await writer.goes_on()
            await home.cable.cut()
            await until(lambda: other.metric("members{") == 2, "both gateways are at the other router", WITHIN_S)

            async def is_told() -> bool:
                members = (await mesh.status()).members
                return any("has not answered" in each.phase_reason for each in members if each.name == "members/r1")

            await until(is_told, "the status says that the router is cut off", WITHIN_S)
            for target in ("c2", "c1"):
                assert await mesh.move(topic, target)
                assert await is_told()
                for writer in writers:
                    await writer.goes_on()
            await home.cable.mend()
            await until(lambda: cut_off.ready() == "ready", "the router follows the log again", WITHIN_S)
            assert await mesh.move(topic, "c2")
            for writer in writers:
                await writer.goes_on()
        finally:
            for writer in writers:
                await writer.end()
        members = [each for each in (await mesh.status()).members if each.kind == admin.MEMBER_KIND_GATEWAY]
        assert [each.left_behind for each in members] == [False, False]
    assert [writer.faults for writer in writers] == [[], []]
    stored = [*read_all(home.cluster.bootstrap, topic), *read_all(kafka_c2.bootstrap, topic)]
    assert_stored_once(stored, [value for writer in writers for value in writer.stored])
