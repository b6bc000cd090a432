"""The world of a client test: one bootstrap address, the clusters behind it, and topics that nobody else uses.

`MESH_TEST_BOOTSTRAP` (with `MESH_TEST_C1` and `MESH_TEST_C2` for the clusters, if they are others) points the suite at
something that runs already: a gateway, or a plain Kafka cluster, which every driver must get along with first.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest

from tests.clients.contract import Admin, Client
from tests.clients.registry import ADMINS, CLIENTS
from tests.clients.upstream import Upstream

PARTITIONS = 3


@dataclass(slots=True)
class World:
    """The address under test, and what its rules do: topics `c1-...` live on c1, `c2-...` on c2."""

    bootstrap: str
    c1: Upstream
    c2: Upstream
    _made: dict[str, list[str]] = field(default_factory=lambda: {"c1": [], "c2": []})
    _serial: Iterator[int] = field(default_factory=itertools.count)

    def name(self, prefix: str) -> str:
        """A name that no other test and no earlier run has used."""
        return f"{prefix}-{next(self._serial)}-{uuid.uuid4().hex[:8]}"

    async def topic_on_each(self, partitions: int = PARTITIONS) -> tuple[str, str]:
        """A topic on c1 and one on c2, made on the clusters themselves."""
        topics = self.name("c1-clients"), self.name("c2-clients")
        for cluster, topic in zip((self.c1, self.c2), topics, strict=True):
            await cluster.create_topics([topic], partitions)
            self._made[cluster.name].append(topic)
        return topics

    async def clean_up(self) -> None:
        for cluster in (self.c1, self.c2):
            topics = self._made[cluster.name]
            if topics:
                await cluster.delete_topics(topics)


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    override = os.environ.get("MESH_TEST_BOOTSTRAP")
    if override:
        bootstrap = override
        c1, c2 = (os.environ.get(name, override) for name in ("MESH_TEST_C1", "MESH_TEST_C2"))
    else:
        bootstrap = request.getfixturevalue("mesh").bootstrap
        c1, c2 = (request.getfixturevalue(name).bootstrap for name in ("kafka_c1", "kafka_c2"))
    world = World(bootstrap, Upstream("c1", c1), Upstream("c2", c2))
    yield world
    await world.clean_up()


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, world: World) -> Client:
    return CLIENTS[request.param](world.bootstrap)


@pytest.fixture(params=list(ADMINS))
async def admin(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Admin]:
    admin = ADMINS[request.param](world.bootstrap)
    yield admin
    await admin.close()
