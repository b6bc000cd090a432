"""The log in Kafka: in order, complete, also over restarts."""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way
    AdminClient,
    ConfigResource,
    ResourceType,
)

from services.control.store.migrate import migrate
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.integration.control.world import WITHIN, World, log_in_kafka, topics_of, until


def settings_of(bootstrap: str, topic: str) -> dict[str, Any]:
    client = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = client.describe_configs([resource], request_timeout=WITHIN)[resource].result(WITHIN)
    return {name: entry.value for name, entry in entries.items()}


async def test_every_event_is_published_in_order_to_a_topic_that_keeps_it(
    mesh_of_two: World, events_topic: str
) -> None:
    for number in range(5):
        await mesh_of_two.set(f"t{number}", "c1")
    await mesh_of_two.published(7)
    found = log_in_kafka(mesh_of_two.home, events_topic, 7)
    assert [event.position for event in found] == [1, 2, 3, 4, 5, 6, 7]
    assert found == list(reversed(await mesh_of_two.history()))
    assert topics_of(mesh_of_two.home)[events_topic] == 1
    settings = settings_of(mesh_of_two.home, events_topic)
    assert (settings["cleanup.policy"], settings["retention.ms"], settings["retention.bytes"]) == ("delete", "-1", "-1")


async def test_the_publisher_goes_on_where_it_stopped(database: str, kafka_c1: KafkaCluster, events_topic: str) -> None:
    world = World(database, kafka_c1.bootstrap, events_topic)
    async with world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.set("apples", "c1")
        await world.published(2)
    async with world:
        await world.set("pears", "c1")
        await world.published(3)
    assert [event.position for event in log_in_kafka(kafka_c1.bootstrap, events_topic, 3)] == [1, 2, 3]


async def test_what_was_decided_while_kafka_was_away_is_published_later(
    database: str, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(database, "127.0.0.1:1", events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.set("apples", "c1")
        assert (await world.status()).published_position == 0
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.published(2)
    assert [event.position for event in log_in_kafka(kafka_c1.bootstrap, events_topic, 2)] == [1, 2]


async def test_an_empty_topic_is_filled_from_the_beginning(
    database: str, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, events_topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.published(1)
    async with World(database, kafka_c2.bootstrap, events_topic) as world:
        await world.set("apples", "c1")
        await world.published(2)
    assert [event.position for event in log_in_kafka(kafka_c2.bootstrap, events_topic, 2)] == [1, 2]


async def test_nothing_is_added_to_the_log_of_another_mesh(
    database: str, postgres: PostgresServer, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.register("c1", kafka_c1.bootstrap)
        await world.published(1)
    stranger = postgres()
    migrate(stranger)
    other = World(stranger, kafka_c1.bootstrap, events_topic)
    await other.start(wait=False)
    await until(lambda: "holds the log of another mesh" in other.lifecycle.reason, "control says whose log it is")
    assert not other.lifecycle.is_ready
    await other.register("west", kafka_c1.bootstrap)
    assert (await other.status()).published_position == 0
    await other.stop()
    async with World(database, kafka_c1.bootstrap, events_topic) as world:
        await world.set("apples", "c1")
        await world.published(2)
    found = log_in_kafka(kafka_c1.bootstrap, events_topic, 2)
    assert [each.WhichOneof("payload") for each in found] == ["cluster_registered", "rule_set_changed"]
