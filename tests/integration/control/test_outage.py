"""PostgreSQL away: reads go on, writes say why they can't, and all heals by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from mesh.rpc import admin, events, instances
from services.control.store.drafts import Caller, Draft
from services.control.store.migrate import migrate
from services.control.upstream import connections
from tests.fixtures.cables import Cable
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import WITHIN, World, create_topic, refused, until


@pytest.fixture
async def cable(database: str) -> AsyncIterator[Cable]:
    made = Cable(database)
    await made.mend()
    yield made
    await made.cut()


async def test_reads_go_on_and_writes_come_back_with_the_database(
    cable: Cable, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(cable.url, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.set("apples", "c1")
        await cable.cut()
        await refused(world.set("pears", "c1"), grpc.StatusCode.UNAVAILABLE, "PostgreSQL at", "stays in force")
        assert (await world.explain("apples")).cluster == "c1"
        assert (await world.status()).last_position == 2
        assert [event.position for event in await world.history()] == [2, 1]
        await until(lambda: not world.lifecycle.is_ready, "control says that it is not ready")
        await cable.mend()
        await until(lambda: world.lifecycle.is_ready, "control is ready again")
        assert (await world.set("pears", "c1")).revision == 3
        await world.published(3)


async def test_a_change_that_is_the_first_when_control_leads_again_is_published_before_it_ends(
    cable: Cable, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    """It waits for gateways, which hear of it in Kafka; whatever else control does when it leads stands behind it."""
    async with World(cable.url, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.published(1)
        control, journal = world.control, world.control.journal

        async def change() -> None:
            await until(lambda: not journal.why_not_leading, "control leads again")
            draft = Draft("clusters/c1", events.ClusterRemoved(cluster_name="c1"))
            [event] = await journal.append([draft], Caller("test"), journal.view, rests_on=lambda view: view.position)
            async with asyncio.timeout(WITHIN):
                await control.publisher.caught_up(event.position)

        await cable.cut()
        await until(lambda: not world.lifecycle.is_ready, "control has lost its database")
        first = asyncio.create_task(control._rules._turns.take(change()))
        await cable.mend()
        await first


async def test_control_starts_before_its_database_and_says_so(
    cable: Cable, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    await cable.cut()
    world = World(cable.url, kafka_c1.bootstrap, events_topic)
    await world.start(wait=False)
    try:
        await until(lambda: "PostgreSQL at" in world.lifecycle.reason, "control says what it waits for")
        await refused(world.status(), grpc.StatusCode.UNAVAILABLE, "has not read its log yet", "PostgreSQL at")
        await cable.mend()
        await until(lambda: world.lifecycle.is_ready, "control is ready")
        assert (await world.status()).last_position == 0
    finally:
        await world.stop()


async def test_a_database_without_tables_is_named(
    postgres: PostgresServer, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    world = World(postgres(), kafka_c1.bootstrap, events_topic)
    await world.start(wait=False)
    try:
        await until(lambda: "run `kafka-mesh migrate`" in world.lifecycle.reason, "control says what is missing")
    finally:
        await world.stop()


async def test_a_database_of_an_older_version_is_named_and_brought_up_to_date(
    postgres: PostgresServer, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    database = postgres()
    migrate(database, revision="0001")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into forwarding_rules values ('apples', 1024, 'topic', 'apples', 'c1', 1, 'ada', now())"
        )
    world = World(database, kafka_c1.bootstrap, events_topic)
    await world.start(wait=False)
    try:
        await until(lambda: "an older version: run `kafka-mesh migrate`" in world.lifecycle.reason, "control says so")
        await asyncio.to_thread(migrate, database)
        await until(lambda: world.lifecycle.is_ready, "control is ready")
    finally:
        await world.stop()
    with psycopg.connect(database) as connection:
        row = connection.execute("select upstream_topic, shadow_topics, node_view from forwarding_rules").fetchone()
    assert row == ("", False, "")


async def test_a_second_replica_stands_by_and_takes_over(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    first = World(database, kafka_c1.bootstrap, events_topic)
    second = World(database, kafka_c1.bootstrap, events_topic)
    await first.start()
    await second.start(wait=False)
    try:
        await first.register("c1", kafka_c1.bootstrap)
        journal = second.control.journal
        await until(lambda: journal.loaded and journal.view.position == 1, "the second replica follows")
        assert not second.lifecycle.is_ready
        assert (await second.explain("apples")).notes
        await refused(second.set("apples", "c1"), grpc.StatusCode.UNAVAILABLE, "another replica of control leads")
        await first.stop()
        await until(lambda: second.lifecycle.is_ready, "the second replica leads")
        assert (await second.set("apples", "c1")).revision == 2
    finally:
        await second.stop()


async def test_instances_of_sidecars(world: World) -> None:
    wanted = events.ConsumerInstance(group="g", instance_id="i", sidecar="s1", topics=["apples"], value_format="json")
    request = instances.RegisterInstanceRequest(instance=wanted)
    first = await world.instances.RegisterInstance(request)
    assert first.name == "instances/g.i"
    assert await world.instances.RegisterInstance(request) == first
    listed = await world.instances.ListInstances(instances.ListInstancesRequest())
    assert list(listed.instances) == [first]
    other = instances.RemoveInstanceRequest(name="instances/g.i", sidecar="s2")
    await refused(
        world.instances.RemoveInstance(other), grpc.StatusCode.FAILED_PRECONDITION, "only that one can remove it"
    )
    mine = instances.RemoveInstanceRequest(name="instances/g.i", sidecar="s1", cause="deleted")
    await world.instances.RemoveInstance(mine)
    await world.instances.RemoveInstance(mine)
    about = admin.ListHistoryRequest(name="instances/g.i", page_size=1)
    newest = await world.decisions.ListHistory(about)
    about.page_token = newest.next_page_token
    oldest = await world.decisions.ListHistory(about)
    told = [list(entry.changes) for page in (newest, oldest) for entry in page.entries]
    assert told == [["consumer g.i removed: deleted"], ["consumer g.i on s1 reads apples"]]
    assert not oldest.next_page_token
    assert await world.history() == []  # nothing of it is in the log


async def test_a_probe_asks_for_no_topic(
    database: str, kafka_c1: KafkaCluster, events_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of 100,000 topics would send all of them every few seconds, to each replica of control."""
    answers: list[int] = []

    class Counting(AdminClient):
        def list_topics(self, *args: Any, **options: Any) -> Any:
            metadata = super().list_topics(*args, **options)
            answers.append(sum(topic.error is None for topic in metadata.topics.values()))
            return metadata

    create_topic(kafka_c1.bootstrap, f"{events_topic}-of-others", 3)
    monkeypatch.setattr(connections, "AdminClient", Counting)
    async with World(database, kafka_c1.bootstrap, events_topic, probe_interval_s=0.1) as world:
        await world.register("c1", kafka_c1.bootstrap)
        before = len(answers)
        await until(lambda: len(answers) >= before + 3, "control has probed the cluster three times")
        assert answers == [0] * len(answers)
        cluster = world.control.journal.view.state.effective.clusters["c1"]
        assert f"{events_topic}-of-others" in await world.control.connections.topics(cluster)
        assert max(answers) >= 2, "topics that are asked for are counted"


async def test_a_sidecar_that_beats_is_a_member(world: World) -> None:
    await world.instances.Beat(instances.BeatRequest(member=admin.Member(name="s1", address="127.0.0.1:8084")))
    shown = (await world.status()).members
    assert [(member.name, member.kind) for member in shown] == [("members/s1", admin.MEMBER_KIND_SIDECAR)]


async def test_a_cluster_registered_unseen_is_known_once_it_answers(
    database: str, kafka_c2: KafkaCluster, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    cable = Cable(f"kafka://{kafka_c2.bootstrap}")
    await cable.mend()
    address = cable.url.removeprefix("kafka://")
    await cable.cut()
    async with World(database, kafka_c1.bootstrap, events_topic, probe_interval_s=0.2) as world:
        assert not (await world.register("c2", address, allow_unreachable=True)).kafka_cluster_id
        await cable.mend()

        async def is_known() -> bool:
            cluster = await world.clusters.GetCluster(admin.GetClusterRequest(name="clusters/c2"))
            return cluster.state == admin.CLUSTER_STATE_REACHABLE and cluster.revision == 2

        await until(is_known, "the id is written down")
        newest = (await world.history(page_size=1))[0]
        assert newest.cluster_updated.cluster.kafka_cluster_id
        await cable.cut()
