"""Control answers who was sent a record, and whether everybody was, from the real table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from mesh.rpc import traffic, traffic_grpc
from tests.fixtures.traffic_tables import TrafficTables
from tests.integration.control.world import CALL, World, refused

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
HOUR = timedelta(hours=1)
SENT, PERHAPS, NOT_SENT = traffic.RECEIPT_STATE_SENT, traffic.RECEIPT_STATE_PERHAPS, traffic.RECEIPT_STATE_NOT_SENT
ALICE: dict[str, Any] = {"principal": "User:alice", "client": "shop-1", "group_name": "shop"}
BOB: dict[str, Any] = {"principal": "User:bob", "client": "look"}
EVE: dict[str, Any] = {"principal": "User:eve", "client": "jumps"}


@pytest.fixture
def tables(database: str) -> TrafficTables:
    return TrafficTables(database)


@pytest.fixture
async def stub(world: World) -> AsyncIterator[traffic_grpc.TrafficServiceAsyncStub]:
    yield traffic_grpc.TrafficServiceStub(world.channel)


async def asked(
    stub: traffic_grpc.TrafficServiceAsyncStub, offset: int | None = 1000, **more: object
) -> traffic.ListReceiptsResponse:
    request = traffic.ListReceiptsRequest(topic="apples", offset=offset, **more)  # type: ignore[arg-type]
    answer: traffic.ListReceiptsResponse = await stub.ListReceipts(request, timeout=CALL)
    return answer


def states(answer: traffic.ListReceiptsResponse) -> dict[tuple[str, str], int]:
    return {(each.principal, each.group): each.state for each in answer.receipts}


async def test_each_reader_of_the_topic_is_told_with_whether_it_was_sent_the_record(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    tables.receipt(NOON, "apples", "{[0,900)}", **ALICE)
    tables.receipt(NOON + HOUR, "apples", "{[900,1200)}", **ALICE)
    tables.receipt(NOON, "apples", "{[0,1000),[1001,1200)}", **BOB)
    tables.receipt(NOON, "apples", "{[5,7)}", perhaps="{[100,2000)}", **EVE)
    tables.receipt(NOON, "pears", "{[0,5000)}", principal="User:mallory")
    tables.tell()

    answer = await asked(stub)

    assert states(answer) == {
        ("User:alice", "shop"): SENT,
        ("User:bob", ""): NOT_SENT,
        ("User:eve", ""): PERHAPS,
    }
    alice, bob, eve = answer.receipts
    assert (list(alice.clients), list(alice.clusters)) == (["shop-1"], ["c1"])
    assert alice.first_time.ToDatetime(UTC) == NOON + HOUR
    assert alice.last_time.ToDatetime(UTC) == alice.last_read_time.ToDatetime(UTC) == NOON + HOUR + HOUR / 6
    assert not bob.HasField("first_time")
    assert list(bob.clients) == ["look"]
    assert bob.last_read_time.ToDatetime(UTC) == NOON + HOUR / 6
    assert eve.first_time.ToDatetime(UTC) == NOON
    assert answer.incomplete == ""


async def test_members_of_a_group_are_one_reader_of_all_partitions(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    tables.receipt(NOON, "apples", "{[0,2000)}", **ALICE)
    tables.receipt(NOON, "apples", "{[0,2000)}", partition=1, **(ALICE | {"client": "shop-2"}))
    tables.receipt(NOON, "apples", "{[0,10)}", partition=1, **BOB)

    whole = await asked(stub)
    of_one = await asked(stub, partition=0)

    told = [(each.partition, each.principal, each.state, list(each.clients)) for each in whole.receipts]
    assert told == [
        (0, "User:alice", SENT, ["shop-1"]),
        (0, "User:bob", NOT_SENT, ["look"]),
        (1, "User:alice", SENT, ["shop-2"]),
        (1, "User:bob", NOT_SENT, ["look"]),
    ]
    assert list(of_one.receipts) == list(whole.receipts)[:2]
    assert [each.principal for each in (await asked(stub, principal="User:bob")).receipts] == ["User:bob"] * 2
    assert {each.group for each in (await asked(stub, group="shop")).receipts} == {"shop"}


async def test_without_an_offset_the_ranges_are_told(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    tables.receipt(NOON, "apples", "{[0,900)}", **ALICE)
    tables.receipt(NOON + HOUR, "apples", "{[900,1200),[1300,1301)}", **ALICE)
    jumps = ",".join(f"[{first},{first + 1})" for first in range(0, 600, 2))
    tables.receipt(NOON, "apples", "{" + jumps + "}", perhaps="{[700,800)}", **EVE)

    alice, eve = (await asked(stub, offset=None)).receipts

    assert [(each.first_offset, each.last_offset) for each in alice.ranges] == [(0, 1199), (1300, 1300)]
    assert (len(eve.ranges), eve.more_ranges) == (100, 200)
    assert (eve.perhaps.first_offset, eve.perhaps.last_offset) == (700, 799)
    assert [each.principal for each in (await asked(stub, offset=None, partition=7)).receipts] == []


async def test_a_topic_that_was_created_again_is_another_one_and_a_topic_that_moved_is_the_same(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    tables.receipt(NOON, "apples", "{[0,2000)}", topic_id=1, **ALICE)
    tables.receipt(NOON + HOUR, "apples", "{[0,500)}", topic_id=2, **ALICE)
    tables.receipt(NOON + 2 * HOUR, "apples", "{[500,2000)}", topic_id=3, cluster="c2", **BOB)
    tables.receipt(NOON + 2 * HOUR, "apples", "{[500,600)}", topic_id=3, cluster="c2", **ALICE)

    found = (await asked(stub)).receipts

    assert [(each.principal, each.state, each.earlier_topic) for each in found] == [
        ("User:alice", NOT_SENT, False),
        ("User:bob", SENT, False),
        ("User:alice", SENT, True),
    ]
    assert list(found[1].clusters) == ["c2"]


async def test_pages_follow_each_other(tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub) -> None:
    for number in range(5):
        tables.receipt(NOON, "apples", "{[0,2000)}", principal=f"User:{number}", client="c")
    found: list[str] = []
    token = ""
    while True:
        page = await asked(stub, page_size=2, page_token=token)
        found += [each.principal for each in page.receipts]
        token = page.next_page_token
        if not token:
            break
    assert found == [f"User:{number}" for number in range(5)]
    request = traffic.ListReceiptsRequest(topic="pears", page_token="no such page")
    await refused(stub.ListReceipts(request, timeout=CALL), grpc.StatusCode.INVALID_ARGUMENT, "page_token")


async def test_readers_that_were_not_told_apart_make_the_answer_incomplete(
    tables: TrafficTables, stub: traffic_grpc.TrafficServiceAsyncStub
) -> None:
    tables.receipt(NOON, "apples", "{[0,2000)}", **ALICE)
    tables.receipt(NOON, "", "{}")
    assert "too many readers" in (await asked(stub)).incomplete


async def test_a_question_without_a_topic_is_refused(stub: traffic_grpc.TrafficServiceAsyncStub) -> None:
    request = traffic.ListReceiptsRequest()
    await refused(stub.ListReceipts(request, timeout=CALL), grpc.StatusCode.INVALID_ARGUMENT, "topic")
