"""A move of a topic with its records in a whole mesh, in Chromium: by keyboard, at two widths, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way
from selenium.webdriver.common.keys import Keys

from local.layout import CERTIFICATES_FOLDER, STATE_FOLDER
from tests.e2e.console.browser import Browser
from tests.fixtures.leaders import await_leaders
from tests.fixtures.meshes import Mesh
from tests.fixtures.ports import free_block
from tests.fixtures.token_issuer import TokenIssuer
from tests.fixtures.topic_moves import BUDGET_MS, WITHIN_S

pytestmark = pytest.mark.soak
AUDIENCE = "mesh"
TOPIC = "apples.moving"
"""The rule of the example for apples leads to c1."""
RECORDS, SIZE = 400, 1000
SLOW_BYTES = 2_000
"""Bytes a second: the copy of the records takes minutes, so the pages are looked at while it goes on."""
QUICK_BYTES = 50_000_000
WIDTHS = (375, 1440)


@dataclass(frozen=True, slots=True)
class House:
    """A mesh whose control takes the tokens of an issuer."""

    mesh: Mesh
    issuer: TokenIssuer

    @property
    def url(self) -> str:
        return f"http://{self.mesh.endpoints['console']}"

    def token(self, person: str) -> str:
        return self.issuer.token(iss=self.issuer.url, aud=AUDIENCE, sub=person)


@pytest.fixture
def house(mesh_factory: Callable[..., Mesh], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[House]:
    """A gateway, a router and two clusters that are real; the topic is on c1; ada is an operator."""
    with TokenIssuer().running() as issuer:
        address = f"127.0.0.1:{free_block(1)}"
        monkeypatch.setenv("KAFKA_MESH_CONTROL_TOKEN_LISTEN", address)
        issuers = json.dumps([{"issuer": issuer.url, "audience": AUDIENCE}])
        monkeypatch.setenv("KAFKA_MESH_CONTROL_TOKEN_ISSUERS", issuers)
        # `migrate` reads the settings of control, too
        own = tmp_path / "mesh-0" / STATE_FOLDER / CERTIFICATES_FOLDER / "control"
        monkeypatch.setenv("KAFKA_MESH_CONTROL_RPC_TLS_FOLDER", str(own))
        monkeypatch.setenv("KAFKA_MESH_CONSOLE_TOKEN_ADDRESS", address)
        mesh = mesh_factory()
        mesh.meshctl("access", "grant", "oidc:ada", "operator")
        client = AdminClient({"bootstrap.servers": mesh.cluster("c1")})
        client.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WITHIN_S)
        await_leaders(client, TOPIC, 1)
        producer = Producer({"bootstrap.servers": mesh.gateway, "batch.num.messages": 1})  # a batch is copied at once
        for number in range(RECORDS):
            producer.produce(TOPIC, key=b"%d" % number, value=b"x" * SIZE)
        assert producer.flush(WITHIN_S) == 0
        yield House(mesh, issuer)


def log_in(chromium: Browser, house: House) -> None:
    chromium.open(f"{house.url}/login")
    chromium.tabs_to("Token")
    chromium.types(house.token("ada"), Keys.ENTER)
    chromium.shows("Log out")


def is_usable(chromium: Browser, axe: str) -> None:
    """At both widths, in light and dark, as the page is now."""
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            chromium.resize(width)
            chromium.prefers(scheme)
            assert chromium.findings(axe) == [], f"{width} px, {scheme}"
            assert chromium.is_as_wide_as_its_window(), f"{width} px"


def goes_to(chromium: Browser, page: str) -> None:
    """By the palette."""
    chromium.chord("k")
    chromium.types(page, Keys.ENTER)


def begins(chromium: Browser, rate: int) -> None:
    """From the page of moves to the page of a move that goes on."""
    goes_to(chromium, "moves")
    chromium.shows("Move a topic")
    chromium.tabs_to("Topic")
    chromium.types(TOPIC)
    chromium.tabs_to("Cluster")
    chromium.types("c2")
    chromium.tabs_to("Bytes a second, at most")
    chromium.types(str(rate))
    chromium.tabs_to("Milliseconds that producers may wait")
    chromium.types(str(BUDGET_MS))
    chromium.tabs_to("Show the plan")
    chromium.types(Keys.ENTER)
    chromium.shows("Nothing has changed yet.")
    chromium.tabs_to("Why")
    chromium.types("bigger disks")
    chromium.tabs_to("Begin the move")
    chromium.types(Keys.ENTER)
    chromium.shows("bigger disks")


def test_a_move_is_begun_looked_at_cancelled_and_finished_by_keyboard_alone(
    house: House, chromium: Browser, axe: str
) -> None:
    chromium.resize(1440)
    log_in(chromium, house)
    begins(chromium, SLOW_BYTES)
    chromium.shows("copying")
    chromium.shows("records behind")  # as the router said, without a key
    is_usable(chromium, axe)
    chromium.picture("console-move")
    move = chromium.driver.current_url
    for page, sign in (("moves", "copying"), ("overview", f"topic {TOPIC} to c2"), ("map", "moves to c2")):
        goes_to(chromium, page)
        chromium.shows(sign)
        is_usable(chromium, axe)
    chromium.tabs_to(f"topic {TOPIC} to c2")  # among what moves now, below the map
    chromium.types(Keys.ENTER)
    chromium.shows("Cancel the move")
    assert chromium.driver.current_url == move
    chromium.tabs_to("Cancel the move")
    chromium.types(Keys.ENTER)
    chromium.shows("cancelled")
    is_usable(chromium, axe)

    chromium.resize(375)
    begins(chromium, QUICK_BYTES)
    chromium.shows("Undo this move")
    chromium.shows("Where it cut")
    is_usable(chromium, axe)
    assert [each for each in chromium.faults() if "favicon" not in each] == []
    assert json.loads(house.mesh.meshctl("explain", TOPIC, "-o", "json").stdout)["cluster"] == "c2"
    copied = Consumer({"bootstrap.servers": house.mesh.cluster("c2"), "group.id": "unused"})
    try:
        assert copied.get_watermark_offsets(TopicPartition(TOPIC, 0), WITHIN_S) == (0, RECORDS)
    finally:
        copied.close()
