"""The map in Chromium: by keyboard, at two widths, in light and dark, while rates change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from mesh.rpc import admin, discovery
from tests.e2e.console.browser import Browser
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import Consoled, consoled
from tests.fixtures.databases import PostgresServer
from tests.fixtures.traffic_tables import TrafficTables
from tests.integration.control.world import create_topic

pytestmark = pytest.mark.soak
GATEWAY = "members/gateway-1"
REPORT_S = 3.0
"""As routers do."""
TOPIC = "map.orders"
"""A short name: the picture of the docs has it."""
WIDTHS = (375, 1440)


class Clients:
    """A router that reports the clients of a gateway, for as long as the test goes on."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes_in = 2048.0

    async def report(self, mesh: Consoled) -> None:
        stream = mesh.world.rollouts.Report()
        router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER)
        gateway = admin.Member(name=GATEWAY, kind=admin.MEMBER_KIND_GATEWAY, client_count=3)
        while True:
            told = discovery.ClientReport(total=3, kinds=1)
            shop = told.clients.add(
                client_id="shop", principal="User:alice", connections=3, topics=[self.topic], produced=[0]
            )
            shop.rates.bytes_in = self.bytes_in
            await stream.write(discovery.RouterReport(router=router, members=[gateway], clients={GATEWAY: told}))
            await asyncio.sleep(REPORT_S)  # as routers do


def counted(database: str, topic: str) -> None:
    """The traffic of the last minutes, as a pipeline writes it."""
    tables = TrafficTables(database)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    of: dict[str, Any] = {
        "principal": "User:alice",
        "client": "shop",
        "topic": topic,
        "rule": "rules/map-orders",
        "cluster": "c1",
    }
    for minute in range(1, 6):
        tables.add("minute", now - timedelta(minutes=minute), api="Produce", bytes=60 * 1500, calls=1, **of)
    tables.tell(complete_until=now)


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.migrated()


@pytest.fixture
async def mesh(
    database: str,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> AsyncIterator[Consoled]:
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    authority = Authority(tmp_path / "authority")
    async with consoled(database, unique_name("console-events"), clusters, authority) as made:
        yield made


async def test_the_map_is_walked_by_keyboard_and_its_rates_change_by_themselves(
    mesh: Consoled, database: str, chromium: Browser, axe: str, kafka_c1: KafkaCluster
) -> None:
    topic = TOPIC
    create_topic(kafka_c1.bootstrap, topic, 2)
    await mesh.world.set(topic, "c1")
    counted(database, topic)
    reported = Clients(topic)
    reporting = asyncio.create_task(reported.report(mesh))

    def looks() -> None:
        chromium.open(f"{mesh.url}/map")
        chromium.shows("in 2.0 KiB/s")
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                chromium.resize(width)
                chromium.prefers(scheme)
                assert chromium.findings(axe) == []
                assert chromium.is_as_wide_as_its_window()
        assert "in 1.5 KiB/s" in chromium.text()
        chromium.prefers("light")
        chromium.picture("console-map")
        chromium.tabs_to("shop User:alice 3 connections")

    def sees_the_new_rate() -> None:
        chromium.shows("in 4.0 KiB/s")
        assert chromium.focused() == "shop User:alice 3 connections", "the focus stays where it was"
        chromium.tabs_to(f"{topic} rule map-orders")
        chromium.types(Keys.ENTER)
        chromium.shows(f"Topic {topic}")

    try:
        await asyncio.to_thread(looks)
        reported.bytes_in = 4096.0
        await asyncio.to_thread(sees_the_new_rate)
    finally:
        reporting.cancel()
    assert [each for each in chromium.faults() if "favicon" not in each] == []
