"""Lineage over gRPC: kept while control restarts, bounded, in pages, and only what the caller may see."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import psycopg
import pytest

from mesh.rpc import access, admin, discovery, discovery_grpc, grants, grants_grpc, lineage, lineage_grpc
from mesh.rpc.channels import open_channel
from services.control.decisions.lineage import gathering
from services.control.domain.lineage import memory
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.members import certificate_of
from tests.fixtures.traffic_tables import TrafficTables
from tests.integration.control.world import CALL, World, refused, until

GATEWAY = admin.Member(name="members/g1", kind=admin.MEMBER_KIND_GATEWAY)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(memory, "GONE_AFTER", timedelta(seconds=1))


@contextlib.asynccontextmanager
async def secured(
    database: str, cluster: KafkaCluster, events_topic: str, authority: Authority, **settings: Any
) -> AsyncIterator[World]:
    folder = certificate_of(authority, "control", "control-1").folder
    made = World(database, cluster.bootstrap, events_topic, rpc_tls_folder=folder, **settings)
    made.caller = certificate_of(authority, "admin", "ada")
    async with made:
        yield made


@contextlib.asynccontextmanager
async def clients(world: World, authority: Authority, *said: discovery.ConnectedClient) -> AsyncIterator[None]:
    """A router that reports these clients of one gateway, until the end."""
    report = discovery.ClientReport(clients=said, total=len(said), kinds=len(said))
    router = admin.Member(name="members/r1", kind=admin.MEMBER_KIND_ROUTER)
    async with open_channel(f"127.0.0.1:{world.control.port}", certificate_of(authority, "router", "r1")) as channel:
        stream = discovery_grpc.MemberReportServiceStub(channel).Report()
        await stream.write(discovery.RouterReport(router=router, members=[GATEWAY], clients={GATEWAY.name: report}))
        await stream.read()
        yield
        stream.cancel()


def client(name: str, topics: list[str], produced: list[int], consumed: list[int], *groups: str) -> (
    discovery.ConnectedClient
):  # fmt: skip
    return discovery.ConnectedClient(
        client_id=name,
        principal="User:alice",
        topics=topics,
        produced=produced,
        consumed=consumed,
        groups=groups,
        connections=1,
    )


SHOP = (
    client("a", ["shop.orders"], [0], []),
    client("b", ["shop.orders", "shop.invoices", "pay.bookings"], [1, 2], [0], "billing"),
    client("c", ["pay.bookings"], [], [0], "ledger"),
)


async def asked(channel: grpc.aio.Channel, **request: Any) -> lineage.QueryLineageResponse:
    stub = lineage_grpc.LineageServiceStub(channel)
    return await stub.QueryLineage(lineage.QueryLineageRequest(**request), timeout=CALL)


async def listed(channel: grpc.aio.Channel, **request: Any) -> lineage.ListLineageResponse:
    stub = lineage_grpc.LineageServiceStub(channel)
    return await stub.ListLineage(lineage.ListLineageRequest(**request), timeout=CALL)


async def until_kept(world: World, number: int) -> None:
    async def is_so() -> bool:
        return len((await listed(world.channel)).edges) == number

    await until(is_so, f"control keeps {number} edges")


def ways(answer: lineage.QueryLineageResponse) -> set[tuple[str, str]]:
    return {(each.source.name.rpartition("/")[2], each.target.name.rpartition("/")[2]) for each in answer.edges}


async def test_edges_stay_over_a_restart_and_after_the_client_has_left(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority
) -> None:
    async with secured(database, kafka_c1, events_topic, authority) as world:
        async with clients(world, authority, *SHOP):
            await until_kept(world, 7)
            answer = await asked(world.channel, topic="shop.orders", depth=20)
            assert ways(answer) == {
                ("a", "shop.orders"), ("shop.orders", "billing"), ("billing", "b"), ("b", "shop.invoices"),
                ("b", "pay.bookings"), ("pay.bookings", "ledger"), ("ledger", "c"),
            }  # fmt: skip
            assert all(each.present for each in answer.edges)
            assert not answer.gathering.problem
            tables = TrafficTables(database)
            for minutes, name, api in ((2, "a", "Produce"), (3, "b", "Fetch"), (90, "b", "Fetch"), (2, "x", "Produce")):
                at = datetime.now(UTC) - timedelta(minutes=minutes)
                who: dict[str, Any] = {"principal": "User:alice", "client": name, "topic": "shop.orders", "api": api}
                tables.add("minute", at, **who, records=3_600, bytes=7_200)
            counted = await asked(world.channel, topic="shop.orders", depth=2)
            rates = {each.target.name: each.records_per_second for each in counted.edges if each.records_per_second}
            assert rates == {"shop.orders": 1.0, "billing": 1.0}
            near = await asked(world.channel, topic="shop.orders", depth=1)
            assert ways(near) == {("a", "shop.orders"), ("shop.orders", "billing")}
            first = {each.source.name: each.first_time for each in answer.edges}

        async def have_left() -> bool:
            return not any(each.present for each in (await listed(world.channel)).edges)

        await until(have_left, "control says that the clients are away")
    async with secured(database, kafka_c1, events_topic, authority) as again:
        answer = await asked(again.channel, topic="shop.orders", depth=20)
        assert {each.source.name: each.first_time for each in answer.edges} == first
        assert not any(each.present for each in answer.edges)


async def test_a_narrowed_viewer_sees_no_topic_outside_of_the_grant_and_nothing_behind(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority
) -> None:
    async with (
        secured(database, kafka_c1, events_topic, authority) as world,
        clients(world, authority, *SHOP),
        open_channel(
            f"127.0.0.1:{world.control.port}", certificate_of(authority, "viewer", "vera")
        ) as viewing,
    ):  # fmt: skip
        await until_kept(world, 7)
        grant = grants.Grant(
            principal="vera", role=access.ROLE_VIEWER, narrowing=grants.Narrowing(topic_prefixes=["shop."])
        )
        await grants_grpc.AccessServiceStub(world.channel).GrantRole(grants.GrantRoleRequest(grant=grant), timeout=CALL)
        answer = await asked(viewing, topic="shop.orders", depth=20)
        assert ways(answer) == {
            ("a", "shop.orders"), ("shop.orders", "billing"), ("billing", "b"), ("b", "shop.invoices"),
        }  # fmt: skip
        assert answer.hidden == 1
        denied = grpc.StatusCode.PERMISSION_DENIED
        await refused(asked(viewing, topic="pay.bookings"), denied, "topic pay.bookings")
        await refused(asked(viewing, topic="c1/shop.orders"), denied)
        await refused(asked(viewing, group="billing"), denied, "names no topic")
        await refused(asked(viewing, application="User:alice/b"), denied, "names no topic")
        await refused(listed(viewing), denied, "names no topic")


async def test_bounds_and_wrong_questions(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority
) -> None:
    async with (
        secured(database, kafka_c1, events_topic, authority, lineage_edges=6) as world,
        clients(world, authority, *SHOP),
    ):
        await until_kept(world, 6)

        async def is_told() -> bool:
            look = (await listed(world.channel)).gathering
            return (look.edges, look.left_out) == (6, 1)

        await until(is_told, "control says how many edges have no room")
        found, token = [], ""
        while True:
            page = await listed(world.channel, page_size=4, page_token=token)
            found += [(each.source.name, each.target.name) for each in page.edges]
            token = page.next_page_token
            if not token:
                break
        assert len(found) == len(set(found)) == 6
        since = lineage.ListLineageRequest()
        since.since_time.FromDatetime(datetime.now(UTC) + timedelta(hours=1))
        assert not (await listed(world.channel, since_time=since.since_time)).edges
        few = await asked(world.channel, application="User:alice/b", depth=20, most_edges=1)
        assert (len(few.edges), few.truncated) == (1, True)
        wrong = grpc.StatusCode.INVALID_ARGUMENT
        await refused(asked(world.channel), wrong, "a topic, an application or a group")
        await refused(asked(world.channel, topic="x", depth=21), wrong, "21 is more than 20")
        await refused(asked(world.channel, topic="x", depth=-1), wrong, "negative")
        await refused(asked(world.channel, topic="x", direction=9), wrong, "no direction")
        await refused(asked(world.channel, application="orders"), wrong, "write it as User:alice/orders")
        await refused(asked(world.channel, group="x" * 501), wrong, "500 characters")
        await refused(listed(world.channel, page_token="x"), wrong, "not a token of this list")
        nothing = grpc.StatusCode.NOT_FOUND
        await refused(asked(world.channel, topic="nowhere"), nothing, "control knows no lineage of topic 'nowhere'")


async def test_old_edges_are_deleted_and_a_control_that_gathers_none_says_so(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic, lineage_edges=0) as world:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            add = (
                "insert into lineage_edges values (gen_random_uuid(), 'application:User:a/x', %s, 'produces', '', "
                "now() - interval '200 days', now() - %s * interval '1 day', false)"
            )
            for name, days in (("topic:old", 91), ("topic:young", 89)):
                await connection.execute(add, (name, days))
        await world.control._gathering.forget()
        answer = await listed(world.channel)
        assert [each.target.name for each in answer.edges] == ["young"]
        assert "LINEAGE_EDGES is 0" in answer.gathering.problem


async def test_a_group_has_no_rate_if_its_application_reads_for_another_group_too(
    database: str, kafka_c1: KafkaCluster, events_topic: str, authority: Authority
) -> None:
    tables = TrafficTables(database)
    who: dict[str, Any] = {"principal": "User:alice", "topic": "orders", "api": "Fetch"}
    for name in ("one", "two"):
        tables.add("minute", datetime.now(UTC) - timedelta(minutes=2), client=name, records=3_600, bytes=1, **who)
    one, two = (client(name, ["orders"], [], [0], *groups) for name, *groups in (("one", "g1"), ("two", "g2", "g3")))
    async with (
        secured(database, kafka_c1, events_topic, authority) as world,
        clients(world, authority, one, two),
    ):
        await until_kept(world, 6)
        for group, rates in (("g1", {1.0}), ("g2", set())):
            answer = await asked(world.channel, group=group)
            assert ways(answer) >= {("orders", group)}
            assert {each.records_per_second for each in answer.edges if each.HasField("records_per_second")} == rates
