"""Fixtures of the client tests: the world, and each driver in turn."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Generator

import pytest

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.contract import Admin, Can, Client
from tests.clients.matrix import BUILT, README, Matrix, readme_table, write_readme
from tests.clients.operator import Operator
from tests.clients.registry import ADMINS, CLIENTS, by_name
from tests.clients.world import Addresses, World, addresses

matrix = Matrix()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*abilities): runs only with clients that can this, a `Can` each")
    config.addinivalue_line("markers", "feature(*features, client): what of the README's table this test shows")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    matrix.add(item, report)
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if matrix.empty:
        return
    table = matrix.table()
    BUILT.parent.mkdir(exist_ok=True)
    BUILT.write_text(table, encoding="utf-8")
    if matrix.complete and table != readme_table():
        if os.environ.get("MESH_WRITE_MATRIX"):
            write_readme(table)
        elif session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"\n{README} says something else than {BUILT}; `make clients` writes it anew")


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> None:
    """A client that fails shows what it did: kafka-python tells how it joins groups, and no more of it is needed."""
    caplog.set_level(logging.INFO, logger="kafka")


@pytest.fixture(scope="session")
def where(request: pytest.FixtureRequest) -> Addresses:
    """Where the system under test is; its rules route the prefixes of the tests."""
    found = addresses(request)
    if found.control is not None:
        operator = Operator(found.control, found.caller)
        for cluster in ("c1", "c2"):
            operator.route_prefix(f"{cluster}-", cluster)
        operator.close()
    return found


@pytest.fixture
async def world(where: Addresses) -> AsyncIterator[World]:
    world = World.at(where)
    yield world
    await world.clean_up()


@pytest.fixture(params=by_name(CLIENTS))
def client(request: pytest.FixtureRequest, world: World) -> Client:
    """Each client that can what the test needs."""
    client = CLIENTS[request.param](world.bootstrap)
    skip_unless_able(request, client.name, client.can)
    return client


@pytest.fixture
def reader(client: Client, world: World) -> Client:
    """The client itself, or another one where it cannot consume."""
    return client if Can.CONSUME in client.can else ConfluentClient(world.bootstrap)


@pytest.fixture(params=by_name(ADMINS))
async def admin(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Admin]:
    """Each admin client that can what the test needs."""
    admin = ADMINS[request.param](world.bootstrap)
    skip_unless_able(request, admin.name, admin.can)
    yield admin
    await admin.close()


def skip_unless_able(request: pytest.FixtureRequest, name: str, can: frozenset[Can]) -> None:
    """For the abilities that `@pytest.mark.needs` names."""
    needed: set[Can] = {ability for marker in request.node.iter_markers("needs") for ability in marker.args}
    lacking = sorted(ability.name.lower().replace("_", " ") for ability in needed - can)
    if lacking:
        pytest.skip(f"{name} cannot {' or '.join(lacking)}")
