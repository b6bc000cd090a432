"""The page of receipts: who was sent a record, as control says it to this viewer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.fixtures.consoles import VIEWER, Consoled
from tests.fixtures.traffic_tables import TrafficTables

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


async def test_a_viewer_sees_who_was_sent_a_record_and_who_was_not(console: Consoled, database: str) -> None:
    tables = TrafficTables(database)
    tables.receipt(NOON, "apples", "{[0,2000)}", principal="User:alice", client="shop-1", group_name="shop")
    tables.receipt(NOON, "apples", "{[0,1000)}", principal="User:bob", client="<b>looks</b>")
    tables.tell()
    await console.grant("vera", VIEWER)
    async with console.person("vera") as vera:
        page = await vera.sees("/receipts?topic=apples&offset=1000&partition=0")
        assert "0 User:alice shop shop-1 sent" in page
        assert "0 User:bob - <b>looks</b> not sent" in page
        page = await vera.sees("/receipts?topic=apples&offset=1000&principal=User%3Abob")
        assert "shop-1" not in page
        assert "Nobody has a receipt of that topic." in await vera.sees("/receipts?topic=pears&offset=1")
        await vera.sees("/receipts")


async def test_a_viewer_of_other_topics_sees_no_receipts(console: Consoled, database: str) -> None:
    TrafficTables(database).receipt(NOON, "apples", "{[0,2000)}", principal="User:alice")
    await console.grant("vera", VIEWER, topic_prefixes=["pears"])
    async with console.person("vera") as vera:
        assert "User:alice" not in await vera.sees("/receipts?topic=apples&offset=1", 403)
