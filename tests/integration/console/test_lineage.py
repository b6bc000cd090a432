"""The pages of lineage: a drawing with links, the same as a table, by the rights of the viewer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from mesh.rpc import admin, discovery, lineage, lineage_grpc
from services.control.decisions.lineage import gathering
from services.control.domain.lineage import memory
from tests.fixtures.consoles import VIEWER, Consoled
from tests.integration.control.world import CALL, until

GATEWAY = admin.Member(name="members/g1", kind=admin.MEMBER_KIND_GATEWAY)
HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(memory, "GONE_AFTER", timedelta(seconds=1))


def client(name: str, topics: list[str], produced: list[int], consumed: list[int], *groups: str) -> (
    discovery.ConnectedClient
):  # fmt: skip
    return discovery.ConnectedClient(
        client_id=name, principal="User:alice", topics=topics, produced=produced, consumed=consumed, groups=groups,
        connections=1,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def seen(console: Consoled, *clients: discovery.ConnectedClient) -> AsyncIterator[None]:
    """Until control has lineage of these clients, and while they are there."""
    report = discovery.ClientReport(clients=clients, total=len(clients), kinds=len(clients))
    stream = console.world.rollouts.Report()
    router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER)
    await stream.write(discovery.RouterReport(router=router, members=[GATEWAY], clients={GATEWAY.name: report}))
    await stream.read()
    stub = lineage_grpc.LineageServiceStub(console.world.channel)

    async def is_known() -> bool:
        return bool((await stub.ListLineage(lineage.ListLineageRequest(), timeout=CALL)).edges)

    await until(is_known, "control has seen the clients")
    yield
    stream.cancel()


SHOP = (
    client("shop", ["shop.orders"], [0], []),
    client("billing", ["shop.orders", "pay.bookings"], [1], [0], "bills"),
    client(HOSTILE, ["shop.orders"], [0], []),
)


async def test_the_lineage_of_a_topic_is_a_drawing_with_links_and_a_table_that_says_the_same(console: Consoled) -> None:
    await console.world.set("shop.orders", "c1")
    await console.grant("vera", VIEWER)
    async with console.person("vera") as vera:
        assert "Show the lineage of" in await vera.sees("/lineage")
        assert "control knows no lineage of topic 'nothing'" in await vera.sees("/lineage?topic=nothing")
        assert "No lineage is known" in await vera.sees("/topics/shop.orders")
        async with seen(console, *SHOP):
            page = await vera.sees("/lineage?topic=shop.orders")
            assert "topic, c1: shop.orders is read by group: bills" in page
            assert "group: bills has the member application: billing of User:alice" in page
            assert "application: billing of User:alice produces to topic: pay.bookings" in page
            raw = (await vera.client.get("/lineage?topic=shop.orders")).text
            assert "<script>alert" not in raw
            [drawing] = re.findall(r"<svg.*?</svg>", raw, re.DOTALL)
            boxes = re.findall(r'<a href="([^"]+)" id="[^"]+".*?<text[^>]*>([^<]+)</text>', drawing, re.DOTALL)
            assert ("/lineage?group=bills", "bills") in boxes
            assert len(boxes) == 6
            assert drawing.count("<path ") == raw.count("<tr><th scope=\"row\">") == 5  # fmt: skip
            assert "style=" not in drawing, "the policy of the console allows no styles inside a page"
            for address, _ in boxes:
                await vera.sees(address.replace("&amp;", "&"))
            up = await vera.sees("/lineage?group=bills&direction=upstream")
            assert "has the member" not in up
            assert "<svg" in (await vera.client.get("/topics/shop.orders")).text

        async def have_left() -> bool:
            return "now" not in (await vera.sees("/lineage?group=bills&depth=1")).partition("Last seen")[2].split()

        await until(have_left, "the page says when each edge was seen last")
        drawing = (await vera.client.get("/lineage?group=bills")).text
        assert drawing.count(' dashed"') == drawing.count("<path ") > 0


async def test_wrong_questions_and_narrowed_viewers(console: Consoled) -> None:
    await console.world.set("shop.orders", "c1")
    await console.grant("narrow", VIEWER, topic_prefixes=["shop."])
    async with seen(console, *SHOP), console.person("narrow") as narrow:
        page = await narrow.sees("/lineage?topic=shop.orders")
        assert "billing of User:alice" in page
        assert "pay.bookings" not in page
        assert "1 topic beyond your grants, and all behind, are not shown." in page
        await narrow.sees("/lineage?topic=pay.bookings", 403)
        await narrow.sees("/lineage?group=bills", 403)
        await narrow.sees("/lineage?topic=shop.orders&group=bills", 409)
        await narrow.sees("/lineage?topic=shop.orders&direction=sideways", 409)
        await narrow.sees("/lineage?topic=shop.orders&depth=99", 409)


async def test_a_wide_graph_stays_within_the_size_of_a_page(console: Consoled) -> None:
    long = "x" * 120
    wide = [client(f"{long}{number}x", ["shop.orders"], [0], []) for number in range(300)]
    async with seen(console, *wide), console.visitor() as visitor:
        page = await visitor.sees("/lineage?topic=shop.orders")
        assert "had no room: the table has them" in page
        assert "There are more than 120 edges" in page
