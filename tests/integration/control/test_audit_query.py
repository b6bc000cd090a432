"""The table of audit events is asked: one record's life, pages of many, and how far the pipeline is."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import psycopg
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy.dialects import postgresql

from mesh import durations
from mesh.rpc import audit
from services.control.domain.audit.queries import HOW_TO_START, AuditQuery, audit_query, refusal_query
from services.control.store.record_audits import _select
from tests.integration.control.world import CALL, World, refused

START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
COLUMNS = (
    "event_id", "time", "cluster_name", "service_id", "audit_type", "audit_status", "topic", "partition", "offset",
    "correlation_id", "traceability_id", "trace_id", "key", "stacktrace", "actor", "method",
)  # fmt: skip


class AuditTable:
    """What a pipeline does, by hand."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def add(self, time: datetime, **fields: Any) -> str:
        """One event; its id."""
        await self._make_day(time)
        row: dict[str, Any] = {
            "event_id": str(uuid.uuid4()), "time": time, "cluster_name": "c1", "service_id": "shop-1",
            "audit_type": "PRODUCER", "audit_status": "SUCCESS", **fields,
        }  # fmt: skip
        columns = ", ".join(f'"{name}"' for name in row)
        places = ", ".join(["%s"] * len(row))
        statement = f"insert into audit_events ({columns}) values ({places})"
        await self._connection.execute(statement.encode(), list(row.values()))
        return str(row["event_id"])

    async def add_many(self, time: datetime) -> None:
        """So many that PostgreSQL has to know where to look; of one second."""
        await self._make_day(time)
        await self._connection.execute(
            "insert into audit_events select %s + n * interval '100 us', gen_random_uuid(), 'c1', 'shop-' || n %% 20, "
            "'PRODUCER', 'SUCCESS', 'orders-' || n %% 50, n %% 12, n, 'c-' || n / 3, 't-' || n / 3, 'w-' || n / 3 "
            "from generate_series(1, 10000) n",
            (time,),
        )
        await self._connection.execute("analyze audit_events")

    async def index_for(self, query: AuditQuery) -> str:
        """The index of the table with which PostgreSQL answers."""
        statement = _select(query, None).limit(10)
        said = statement.compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})  # type: ignore[no-untyped-call]
        cursor = await self._connection.execute(f"explain (format json) {said}".encode())
        [(plans,)] = await cursor.fetchall()
        [of_day] = re.findall(r"'Index Name': '(\w+)'", str(plans))
        of_table = await self._connection.execute(
            "select inhparent::regclass::text from pg_inherits where inhrelid = %s::regclass", (of_day,)
        )
        [(name,)] = await of_table.fetchall()
        return str(name)

    async def _make_day(self, time: datetime) -> None:
        day = time.astimezone(UTC).date()
        await self._connection.execute(
            f"create table if not exists audit_events_{day:%Y%m%d} partition of audit_events "
            f"for values from ('{day}') to ('{day + timedelta(days=1)}')".encode()
        )

    async def tell(self, cluster: str, problem: str = "", *, seconds_ago: float = 0) -> None:
        """What the pipeline says of a cluster, once in a while."""
        await self._connection.execute(
            "insert into audit_sources values (%s, %s, now() - %s)", (cluster, problem, timedelta(seconds=seconds_ago))
        )

    async def progress(self, partition: int, next_offset: int, log_end: int, *, seconds_ago: float) -> None:
        await self._connection.execute(
            "insert into audit_progress values ('c1', 'sidecar-audit', %s, %s, %s, now() - %s, now())",
            (partition, next_offset, log_end, timedelta(seconds=seconds_ago)),
        )


@pytest.fixture
async def table(database: str) -> AsyncIterator[AuditTable]:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        yield AuditTable(connection)


async def query(world: World, **asked: Any) -> audit.QueryAuditResponse:
    return await world.audit.Query(audit.QueryAuditRequest(**asked), timeout=CALL)


async def test_a_record_has_its_whole_life_told_the_oldest_first(world: World, table: AuditTable) -> None:
    consumed = await table.add(
        START + timedelta(days=1), cluster_name="c2", service_id="bill-1", audit_type="REACTIVE_CONSUMER",
        audit_status="FAILURE", topic="orders", partition=3, offset=7, correlation_id="5Cl", traceability_id="t-1",
        trace_id="0" * 31 + "a", key="bob", stacktrace="boom",
    )  # fmt: skip
    produced = await table.add(START, topic="orders", partition=3, offset=7, correlation_id="5Cl")
    await table.add(START, topic="orders", partition=3, offset=8, correlation_id="other")

    found = await query(world, correlation_id="5Cl")
    assert [each.id for each in found.events] == [produced, consumed]
    last = found.events[1]
    expected = audit.RecordAudit(
        id=consumed, cluster_name="c2", service_id="bill-1", audit_type="REACTIVE_CONSUMER", audit_status="FAILURE",
        topic="orders", partition=3, offset=7, correlation_id="5Cl", traceability_id="t-1", trace_id="0" * 31 + "a",
        key="bob", stacktrace="boom",
    )  # fmt: skip
    expected.time.FromDatetime(START + timedelta(days=1))
    assert last == expected
    for asked in ({"traceability_id": "t-1"}, {"trace_id": "0" * 31 + "a"}, {"event_id": consumed}):
        assert [each.id for each in (await query(world, **asked)).events] == [consumed]
    of_place = await query(world, topic="orders", partition=3, offset=7)
    assert [each.id for each in of_place.events] == [produced, consumed]
    assert [each.id for each in (await query(world, correlation_id="5Cl", audit_status="SUCCESS")).events] == [produced]


async def test_an_event_without_a_place_says_so(world: World, table: AuditTable) -> None:
    await table.add(START, service_id="control", audit_type="CONTROL", key="clusters/c1", actor="bob", method="/m/R")
    begin = audit.QueryAuditRequest()
    begin.start_time.FromDatetime(START)
    [event] = (await query(world, service_id="control", start_time=begin.start_time)).events
    assert (event.partition, event.offset, event.topic, event.actor, event.method) == (-1, -1, "", "bob", "/m/R")


async def test_pages_go_on_where_the_one_before_ended_also_among_events_of_one_moment(
    world: World, table: AuditTable
) -> None:
    ids = {await table.add(START + timedelta(days=number // 5), correlation_id="many") for number in range(10)}
    seen: list[str] = []
    token = ""
    while True:
        page = await query(world, correlation_id="many", page_size=3, page_token=token)
        seen += [each.id for each in page.events]
        if not (token := page.next_page_token):
            break
        assert len(page.events) == 3
    assert len(seen) == 10
    assert set(seen) == ids


async def test_a_token_belongs_to_its_question(world: World, table: AuditTable) -> None:
    for _ in range(2):
        await table.add(START, correlation_id="many")
    token = (await query(world, correlation_id="many", page_size=1)).next_page_token
    for asked in ({"correlation_id": "other", "page_token": token}, {"correlation_id": "many", "page_token": "x"}):
        await refused(query(world, **asked), grpc.StatusCode.INVALID_ARGUMENT, "page_token")


async def test_what_cannot_be_asked_is_refused_by_the_name_of_its_field(world: World) -> None:
    for asked, field in (
        ({}, "correlation_id"),
        ({"topic": "orders", "offset": 3}, "offset"),
        ({"event_id": "seven"}, "event_id"),
        ({"correlation_id": "c", "page_size": -1}, "page_size"),
    ):
        await refused(query(world, **asked), grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_it_is_said_how_far_the_table_is(world: World, table: AuditTable) -> None:
    never = (await query(world, correlation_id="c")).freshness
    assert never.problem == f"no pipeline has ever brought audit events here: {HOW_TO_START}"

    await table.tell("c1")
    await table.tell("c2", "no answer from there")
    await table.progress(0, 90, 100, seconds_ago=50)
    await table.progress(1, 5, 5, seconds_ago=1)
    found = (await query(world, correlation_id="c")).freshness
    assert (found.problem, found.behind_events) == ("c2: no answer from there", 10)
    assert 45 <= durations.in_s(found.behind) <= 50


async def test_it_is_said_that_the_pipeline_has_ended(world: World, table: AuditTable) -> None:
    await table.tell("c1", seconds_ago=3600)
    found = (await query(world, correlation_id="c")).freshness
    assert found.problem.startswith("no pipeline has been heard of for 36")
    assert found.problem.endswith(HOW_TO_START)


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ({"correlation_id": "c-7"}, "correlation_id"),
        ({"traceability_id": "t-7"}, "traceability_id"),
        ({"trace_id": "w-7"}, "trace_id"),
        ({"topic": "orders-7", "partition": 0, "offset": 7}, "place"),
        ({"topic": "orders-7"}, "topic"),
        ({"service_id": "shop-7"}, "service"),
    ],
)
async def test_each_question_is_answered_by_its_index(table: AuditTable, asked: dict[str, Any], index: str) -> None:
    await table.add_many(START)
    wanted = audit_query(audit.QueryAuditRequest(**asked), START + timedelta(hours=1))
    assert await table.index_for(wanted) == f"audit_events_{index}"


async def test_refusals_of_a_principal_are_found_by_their_index(table: AuditTable) -> None:
    await table.add_many(START)
    await table._connection.execute(
        "update audit_events set audit_type = 'AUTHORIZATION', key = 'User:u-' || \"offset\" where \"offset\" % 2 = 0"
    )
    await table._connection.execute("analyze audit_events")
    wanted = refusal_query(audit.ListRefusalsRequest(principal="User:u-4"), START + timedelta(hours=1))
    assert await table.index_for(wanted) == "audit_events_refused"


async def refusals(world: World, **asked: Any) -> audit.ListRefusalsResponse:
    return await world.audit.ListRefusals(audit.ListRefusalsRequest(**asked), timeout=CALL)


def times(**span: datetime) -> dict[str, Timestamp]:
    made = {name: Timestamp() for name in span}
    for name, time in span.items():
        made[name].FromDatetime(time)
    return made


async def test_a_clients_refusals_are_listed_the_newest_first_with_their_reasons(
    world: World, table: AuditTable
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    bob = {"audit_type": "AUTHORIZATION", "audit_status": "FAILURE", "key": "User:bob", "service_id": "g1"}
    for minutes, fields in (
        (50, {"topic": "shop.a", "stacktrace": "User:bob may not Write"}),
        (40, {"topic": "shop%a"}),
        (30, {"topic": "pay", "audit_type": "VALIDATION", "partition": 3, "audit_status": "SUCCESS"}),
        (20, {"topic": None}),
        (10, {"key": "User:eve", "topic": "pay"}),
        (5, {"audit_type": "PRODUCER", "topic": "pay"}),
        (2000, {"topic": "old"}),
    ):
        await table.add(now - timedelta(minutes=minutes), **{**bob, **fields})

    found = await refusals(world, principal="User:bob")
    assert [each.topic for each in found.refusals] == ["", "pay", "shop%a", "shop.a"]
    oldest = audit.Refusal(
        principal="User:bob", audit_type="AUTHORIZATION", topic="shop.a", partition=-1, enforced=True,
        reason="User:bob may not Write", gateway="g1", **times(time=now - timedelta(minutes=50)),
    )  # fmt: skip
    assert found.refusals[-1] == oldest
    assert (found.refusals[1].enforced, found.refusals[1].partition) == (False, 3)
    assert found.freshness.problem.endswith(HOW_TO_START)

    first = await refusals(world, principal="User:bob", page_size=3)
    rest = await refusals(world, principal="User:bob", page_size=3, page_token=first.next_page_token)
    assert [*first.refusals, *rest.refusals] == list(found.refusals)
    assert rest.next_page_token == ""

    since = times(start_time=now - timedelta(days=3), end_time=now - timedelta(minutes=45))
    assert [each.topic for each in (await refusals(world, principal="User:bob", **since)).refusals] == ["shop.a", "old"]
    of_prefix = await refusals(world, principal="User:bob", topic_prefix="shop%")
    assert [each.topic for each in of_prefix.refusals] == ["shop%a"]
    of_topic = await refusals(world, topic="pay")
    assert [each.principal for each in of_topic.refusals] == ["User:eve", "User:bob"]

    wrong = grpc.StatusCode.INVALID_ARGUMENT
    await refused(refusals(world), wrong, "the principal or the topic is needed")
    await refused(refusals(world, principal="bob"), wrong, "expected User:NAME")
    await refused(refusals(world, topic_prefix="shop.", topic="pay"), wrong, "stands beside a principal")
    backwards = times(start_time=now, end_time=now - timedelta(hours=1))
    await refused(refusals(world, principal="User:bob", **backwards), wrong, "is not after start_time")
    await refused(
        refusals(world, principal="User:eve", page_token=first.next_page_token), wrong, "not a token of this list"
    )


async def test_without_its_tables_the_question_is_refused(world: World, table: AuditTable) -> None:
    await table._connection.execute("alter table audit_events rename to away")
    await refused(query(world, correlation_id="c"), grpc.StatusCode.UNAVAILABLE, "kafka-mesh migrate")
