"""Lineage in Chromium: from node to node by keyboard alone, narrow and wide, light and dark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from mesh.rpc import admin, discovery, lineage, lineage_grpc
from tests.e2e.console.browser import Browser
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import VIEWER, Consoled, consoled
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import CALL, until

pytestmark = pytest.mark.soak
WIDTHS = (375, 1440)
SHOP: tuple[tuple[str, list[str], list[int], list[int], str], ...] = (
    ("shop", ["shop.orders"], [0], [], ""),
    ("billing", ["shop.orders", "pay.bookings"], [1], [0], "billing"),
    ("mail", ["shop.orders"], [], [0], "mails"),
    ("ledger", ["pay.bookings"], [], [0], "ledger"),
)


@pytest.fixture
async def mesh(
    postgres: PostgresServer, kafka_c1: KafkaCluster, unique_name: Callable[[str], str], tmp_path: Path
) -> AsyncIterator[Consoled]:
    authority = Authority(tmp_path / "authority")
    async with consoled(postgres.migrated(), unique_name("console-events"), {"c1": kafka_c1}, authority) as made:
        for prefix in ("shop.", "pay."):
            await made.world.set_rule({"topic_prefix": prefix}, {"target_cluster": "c1"})
        await made.grant("ada", VIEWER)
        yield made


async def with_clients(mesh: Consoled) -> None:
    report = discovery.ClientReport(total=len(SHOP), kinds=len(SHOP))
    for name, topics, produced, consumed, group in SHOP:
        report.clients.add(
            client_id=name, principal="User:alice", connections=1, topics=topics, produced=produced, consumed=consumed,
            groups=[group] if group else [],
        )  # fmt: skip
    gateway = admin.Member(name="members/gateway-1", kind=admin.MEMBER_KIND_GATEWAY)
    router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER)
    stream = mesh.world.rollouts.Report()
    await stream.write(discovery.RouterReport(router=router, members=[gateway], clients={gateway.name: report}))
    await stream.read()
    stub = lineage_grpc.LineageServiceStub(mesh.world.channel)

    async def is_known() -> bool:
        return len((await stub.ListLineage(lineage.ListLineageRequest(), timeout=CALL)).edges) == 8

    await until(is_known, "control has seen the clients")


async def test_lineage_is_walked_by_keyboard_alone(mesh: Consoled, chromium: Browser, axe: str) -> None:
    await with_clients(mesh)

    def walks() -> None:
        chromium.open(f"{mesh.url}/login")
        chromium.tabs_to("Token")
        chromium.types(mesh.token("ada"), Keys.ENTER)
        chromium.shows("Log out")
        chromium.chord("k")
        chromium.types("lineage", Keys.ENTER)
        chromium.tabs_to("Topic")
        chromium.types("shop.orders", Keys.ENTER)
        chromium.shows("Lineage of topic shop.orders")
        chromium.tabs_to("billing group")
        chromium.types(Keys.ENTER)
        chromium.shows("Lineage of group billing")
        chromium.tabs_to("billing application")
        chromium.types(Keys.ENTER)
        chromium.shows("Lineage of application User:alice/billing")
        chromium.shows("application: billing of User:alice")
        chromium.open(f"{mesh.url}/lineage?topic=shop.orders")
        for scheme in ("light", "dark"):
            chromium.prefers(scheme)
            for width in WIDTHS:
                chromium.resize(width)
                assert chromium.findings(axe) == []
                assert chromium.is_as_wide_as_its_window()
        chromium.prefers("light")
        chromium.picture("console-lineage")

    await asyncio.to_thread(walks)
    assert [each for each in chromium.faults() if "favicon" not in each] == []
