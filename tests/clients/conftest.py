"""Fixtures of the client tests: the world, and each driver in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.clients.contract import Admin, Client
from tests.clients.operator import Operator
from tests.clients.registry import ADMINS, CLIENTS
from tests.clients.world import Addresses, World, addresses


@pytest.fixture(scope="session")
def where(request: pytest.FixtureRequest) -> Addresses:
    """Where the system under test is; its rules route the prefixes of the tests."""
    found = addresses(request)
    if found.control is not None:
        operator = Operator(found.control)
        for cluster in ("c1", "c2"):
            operator.route_prefix(f"{cluster}-", cluster)
        operator.close()
    return found


@pytest.fixture
async def world(where: Addresses) -> AsyncIterator[World]:
    world = World.at(where)
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
