"""The map: the figures of control between clients, topics and clusters, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its own documented way

from mesh.rpc import admin, clients, clients_grpc, discovery, topic_moves, topic_moves_grpc
from services.console.flows import MOST_CLIENTS, MOST_TOPICS
from services.console.parts import Tone
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import VIEWER, Consoled, text_of
from tests.fixtures.traffic_tables import TrafficTables
from tests.integration.control.world import CALL, WITHIN, create_topic, until

GATEWAY = "members/g1"
PATH = re.compile(r'<path [^>]*class="([^"]*)"[^>]*><title>([^<]*)</title>')
BOX = re.compile(r'<a href="([^"]*)" id="n-[0-9a-f]{12}"(?: aria-description="([^"]*)")?>(.*?)</a>', re.DOTALL)


@asynccontextmanager
async def connected(console: Consoled, report: discovery.ClientReport) -> AsyncIterator[None]:
    """A router that reports these clients of a gateway."""
    stream = console.world.rollouts.Report()
    router = admin.Member(name="members/router-1", kind=admin.MEMBER_KIND_ROUTER)
    gateway = admin.Member(name=GATEWAY, kind=admin.MEMBER_KIND_GATEWAY, client_count=report.total)
    await stream.write(discovery.RouterReport(router=router, members=[gateway], clients={GATEWAY: report}))
    await stream.read()
    inventory = clients_grpc.ClientServiceStub(console.world.channel)

    async def is_known() -> bool:
        return bool((await inventory.ListClients(clients.ListClientsRequest(), timeout=CALL)).clients)

    await until(is_known, "control knows the clients")
    try:
        yield
    finally:
        stream.cancel()


def shop(topic: str) -> discovery.ClientReport:
    report = discovery.ClientReport(total=4, kinds=2)
    for connections in (1, 2):  # two kinds of one client: the map has it once
        each = report.clients.add(
            client_id="shop", principal="User:alice", connections=connections, topics=[topic], produced=[0],
            software=f"kafka/{connections}",
        )  # fmt: skip
        each.rates.requests, each.rates.bytes_in, each.rates.bytes_out = 2.5, 1024, 512
    report.clients.add(client_id="<b>report</b>", principal="User:bob", connections=1, topics=[topic], consumed=[0])
    return report


async def test_the_map_has_clients_topics_rules_and_clusters_with_the_rates_of_the_api(
    console: Consoled, database: str, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 1)
    await console.world.set(topic, "c1")
    [rule] = [each.name for each in (await console.world.rules.ListRules(admin.ListRulesRequest())).rules]
    tables = TrafficTables(database)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    of: dict[str, Any] = {"principal": "User:alice", "client": "shop", "topic": topic, "rule": rule, "cluster": "c1"}
    minutes = [now - timedelta(minutes=each) for each in range(1, 6)]
    for minute in minutes:
        tables.add("minute", minute, api="Produce", bytes=60 * 2048, calls=1, **of)
        tables.add("minute", minute, api="produce", reporter="sidecar", bytes=999_999, calls=1, **of)
    tables.tell(complete_until=now)
    await console.grant("vera", VIEWER)
    async with connected(console, shop(topic)), console.person("vera") as vera:
        await vera.sees("/map")
        page = (await vera.client.get("/map")).text
        lines = {text: tone for tone, text in PATH.findall(page)}
        assert f"shop writes {topic}: 2.0 KiB in, 0 B out a second" in lines
        assert f"&lt;b&gt;report&lt;/b&gt; reads {topic}: 0 B in, 0 B out a second" in lines
        assert f"{topic} lives on c1: 2.0 KiB in, 0 B out a second" in lines, "a sidecar's count is not added"
        boxes = {about or text_of(f"<main>{inside}</main>"): href for href, about, inside in BOX.findall(page)}
        assert boxes["shop User:alice 3 connections"] == "/clients?client_id=shop&amp;principal=User%3Aalice"
        assert f"{topic} rule {rule.removeprefix('rules/')}" in boxes
        assert "c1 (home) reachable 1 broker" in boxes
        text = text_of(page)
        assert "in 2.0 KiB/s out 1.0 KiB/s" in text, "the live rate of a client, over its kinds"
        assert f"shop User:alice writes {topic} 2.0 KiB 0 B" in text
        assert "shop User:alice 3 5.0 2.0 KiB 1.0 KiB" in text
        assert "Nothing moves now." in text
        assert "<b>report" not in page


async def test_without_a_pipeline_no_rate_of_a_topic_is_shown(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 1)
    await console.world.set(topic, "c1")
    async with connected(console, shop(topic)), console.visitor() as visitor:
        text = await visitor.sees("/map")
        assert "Rates of topics are not known:" in text
        assert f"shop User:alice writes {topic} - -" in text
        assert f"{topic} lives on c1 " in text
        assert "in 2.0 KiB/s" in text, "rates of clients are of gateways"


async def test_a_topic_that_moves_is_on_the_map_however_quiet_and_a_cluster_that_is_away_says_so(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    prefix = unique_name("apples")
    names = [f"{prefix}-{number:02}" for number in range(MOST_TOPICS + 5)]
    admin_client = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for future in admin_client.create_topics([NewTopic(each, 1, 1) for each in names]).values():
        future.result(WITHIN)
    await console.world.set_rule({"topic_prefix": prefix}, {"target_cluster": "c1"})
    spec = topic_moves.TopicMoveSpec(topic=names[-1], target_cluster="c2", kind=topic_moves.TOPIC_MOVE_KIND_COPY)
    stub = topic_moves_grpc.TopicMoveServiceStub(console.world.channel)
    await stub.StartTopicMove(topic_moves.StartTopicMoveRequest(spec=spec), timeout=CALL)
    async with console.visitor() as visitor:
        page = (await visitor.client.get("/map")).text
        lines = {text: tone for tone, text in PATH.findall(page)}
        assert lines[f"{names[-1]} moves to c2"].split() == [Tone.WARNING, "dashed"]
        assert f"topic {names[-1]} to c2 move" in text_of(page)
        topics = [href for href, *_ in BOX.findall(page) if href.startswith("/topics/")]
        assert len(topics) == MOST_TOPICS
        assert re.search(r"and 5 more topics", page)


async def test_many_clients_are_the_busiest_and_one_node_that_says_how_many_more(
    console: Consoled, unique_name: Callable[[str], str]
) -> None:
    report = discovery.ClientReport(total=1000, kinds=1000)
    for number in range(1000):
        each = report.clients.add(
            client_id=f"shop-{number:03}", principal="User:alice", connections=1, topics=[f"t{n}" for n in range(200)],
            produced=range(200),
        )  # fmt: skip
        each.rates.bytes_in = number
    async with connected(console, report), console.visitor() as visitor:
        text = await visitor.sees("/map")  # and less than 150 kB
        assert "shop-999" in text
        assert f"shop-{999 - MOST_CLIENTS}" not in text
        assert f"and {1000 - MOST_CLIENTS} more clients" in text


async def test_who_may_not_see_the_mesh_gets_no_map(console: Consoled) -> None:
    await console.world.set("pay", "c1")
    await console.grant("vera", VIEWER, topic_prefixes=["shop."])
    async with console.person("vera") as vera:
        assert "pay" not in await vera.sees("/map", 403)
    async with console.person("nobody") as nobody:
        assert "has no grant" in await nobody.sees("/map", 403)
