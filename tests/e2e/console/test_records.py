"""Records in Chromium: found, followed and written by keyboard alone, at 375 px; no text of a record is run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from tests.e2e.console.browser import Browser
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.console_records import READ, WRITE, Recorded, recorded
from tests.fixtures.consoles import VIEWER, consoled
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import create_topic

pytestmark = pytest.mark.soak
HOSTILE = '{"text":"<img src=x onerror=document.title=1><script>document.title=2</script>"}'


@pytest.fixture
async def house(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> AsyncIterator[tuple[Recorded, str]]:
    """Apples on c1, which ada may read and write."""
    clusters, topic = {"c1": kafka_c1, "c2": kafka_c2}, unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 2)
    authority = Authority(tmp_path / "authority")
    async with (
        consoled(postgres.migrated(), unique_name("console-events"), clusters, authority) as made,
        recorded(made, tmp_path, clusters, {topic: "c1"}) as house,
    ):
        await made.grant("ada", VIEWER)
        house.allow(("ada", READ, topic), ("ada", WRITE, topic))
        yield house, topic


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_records_are_found_written_and_followed_by_keyboard_alone(
    house: tuple[Recorded, str], chromium: Browser, axe: str, scheme: str
) -> None:
    recording, topic = house
    consoled = recording.consoled
    recording.write("c1", topic, {"key": "a", "value": HOSTILE, "headers": [("kind", b"fruit")], "partition": 0})

    def is_usable() -> None:
        assert chromium.findings(axe) == []
        assert chromium.is_as_wide_as_its_window()
        assert chromium.driver.title.endswith("Kafka Mesh"), "no text of a record is run"

    def walks() -> None:
        chromium.prefers(scheme)
        chromium.resize(375)
        chromium.open(f"{consoled.url}/login")
        chromium.tabs_to("Token")
        chromium.types(consoled.token("ada"), Keys.ENTER)
        chromium.shows("Log out")
        chromium.chord("k")
        chromium.types("records", Keys.ENTER)
        chromium.shows("Look at records")
        is_usable()
        chromium.tabs_to("Topic")
        chromium.types(topic, Keys.ENTER)
        chromium.shows("document.title=1")
        is_usable()
        chromium.tabs_to("0/0")
        chromium.types(Keys.ENTER)
        chromium.shows("Write it again by a sidecar")
        is_usable()
        chromium.tabs_to("Copy value")
        chromium.types(Keys.ENTER)
        chromium.open(f"{consoled.url}/records/new?topic={topic}")
        chromium.tabs_to("Value")
        chromium.types("by hand")
        is_usable()
        chromium.tabs_to("Write the record")
        chromium.types(Keys.ENTER)
        chromium.shows("by hand")
        chromium.open(f"{consoled.url}/records/tail?topic={topic}")
        chromium.shows("Records as they come")

    await asyncio.to_thread(walks)

    shown = asyncio.create_task(asyncio.to_thread(chromium.shows, "document.title=2"))
    while not shown.done():  # the page says nowhere that its stream has begun
        await asyncio.to_thread(recording.write, "c1", topic, {"value": HOSTILE, "partition": 1})
        await asyncio.wait([shown], timeout=1)
    await shown
    await asyncio.to_thread(is_usable)
    assert [each for each in chromium.faults() if "favicon" not in each] == []
