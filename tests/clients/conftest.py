"""Fixtures of the client tests: the world, and each driver in turn."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import replace
from enum import StrEnum

import pytest

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.contract import Admin, Can, Client
from tests.clients.entrances import Entrance
from tests.clients.matrix import BUILT, README, Matrix, readme_table, write_readme
from tests.clients.operator import Operator
from tests.clients.registry import ADMINS, CLIENTS, by_name
from tests.clients.secured import SUITES, entrance_of, secured_gateway
from tests.clients.world import Addresses, World, addresses
from tests.fixtures.meshes import Mesh

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


class Door(StrEnum):
    """How the clients of a suite enter."""

    OPEN = "open"
    ACLS = "acls"
    """They log in, and may do what their suite needs: `secured.py`."""


SOON_UNDER_ACLS = {"confluent", "franz-go"}
"""Clients that `make test` runs under ACLs, too; `make soak` runs the others."""


def suite_of(module: object) -> str:
    """ "records" for test_records.py."""
    return str(getattr(module, "__name__", "")).rpartition(".test_")[2]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "where" in metafunc.fixturenames and suite_of(metafunc.module) in SUITES:
        metafunc.parametrize("where", Door, ids=str, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if given.get("where") is Door.ACLS and given.get("client", "") not in SOON_UNDER_ACLS:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def where(request: pytest.FixtureRequest) -> Iterator[Addresses]:
    """Where the system under test is; its rules route the prefixes of the tests."""
    found = addresses(request)
    if found.control is not None:
        operator = Operator(found.control, found.caller)
        for cluster in ("c1", "c2"):
            operator.route_prefix(f"{cluster}-", cluster)
        operator.close()
    if getattr(request, "param", Door.OPEN) is Door.OPEN:
        yield found
        return
    if os.environ.get("MESH_TEST_BOOTSTRAP"):
        pytest.skip("the system under test has policies of its own")
    mesh: Mesh = request.getfixturevalue("mesh")
    folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    with secured_gateway(mesh, folders.mktemp("secured")) as address:
        yield replace(found, bootstrap=address, logs_in=True)


@pytest.fixture
async def world(where: Addresses, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if where.logs_in:
        where = replace(where, bootstrap=entrance_of(suite_of(request.module), where.bootstrap))
    world = World.at(where, request.node.nodeid)
    yield world
    await world.clean_up()


@pytest.fixture(params=by_name(CLIENTS))
def client(request: pytest.FixtureRequest, world: World) -> Client:
    """Each client that can what the test needs."""
    client = CLIENTS[request.param](world.bootstrap)
    skip_unless_able(request, client.name, client.can, world)
    return client


@pytest.fixture
def reader(client: Client, world: World) -> Client:
    """The client itself, or another one where it cannot consume."""
    return client if Can.CONSUME in client.can else ConfluentClient(world.bootstrap)


@pytest.fixture(params=by_name(ADMINS))
async def admin(request: pytest.FixtureRequest, world: World) -> AsyncIterator[Admin]:
    """Each admin client that can what the test needs."""
    admin = ADMINS[request.param](world.bootstrap)
    skip_unless_able(request, admin.name, admin.can, world)
    yield admin
    await admin.close()


def skip_unless_able(request: pytest.FixtureRequest, name: str, can: frozenset[Can], world: World) -> None:
    """For the abilities that `@pytest.mark.needs` names, and the login that the gateway asks for."""
    needed: set[Can] = {ability for marker in request.node.iter_markers("needs") for ability in marker.args}
    if Entrance.of(world.bootstrap).user:
        needed.add(Can.LOG_IN)
    lacking = sorted(ability.name.lower().replace("_", " ") for ability in needed - can)
    if lacking:
        pytest.skip(f"{name} cannot {' or '.join(lacking)}")
