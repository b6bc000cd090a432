"""Control on a fresh database and its own topic, with both clusters registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.control.decisions.members import rollouts
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.gateway_pair import GatewayPair
from tests.integration.control.world import World


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """URL of a fresh, migrated database."""
    return postgres.migrated()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of the mesh."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def events_topic(unique_name: Callable[[str], str]) -> str:
    return unique_name("control-events")


@pytest.fixture
async def world(database: str, kafka_c1: KafkaCluster, events_topic: str) -> AsyncIterator[World]:
    """Control, nothing registered."""
    async with World(database, kafka_c1.bootstrap, events_topic) as made:
        yield made


@pytest.fixture
async def mesh_of_two(world: World, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> World:
    """Control with c1 and c2."""
    await world.register("c1", kafka_c1.bootstrap)
    await world.register("c2", kafka_c2.bootstrap)
    world.control.members.ever_reported = True  # no routers are on their way back
    return world


@pytest.fixture
async def gateway_pair(
    mesh_of_two: World,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[GatewayPair]:
    """Two gateways that the test starts."""
    monkeypatch.setattr(rollouts, "COMEBACK_TIME", 0.3)
    clusters = {"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap}
    made = GatewayPair(mesh_of_two, unique_name("gateways"), clusters, tmp_path)
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def gateways(gateway_pair: GatewayPair) -> GatewayPair:
    """Two gateways with one router."""
    await gateway_pair.start()
    return gateway_pair
