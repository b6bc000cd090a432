"""A console at a control on a fresh database, with both clusters registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import Consoled, consoled
from tests.fixtures.databases import PostgresServer


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.migrated()


@pytest.fixture
async def console(
    database: str,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    authority: Authority,
) -> AsyncIterator[Consoled]:
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    async with consoled(database, unique_name("console-events"), clusters, authority) as made:
        yield made
