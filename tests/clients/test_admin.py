"""Every admin client sees one cluster: topics, settings, brokers and groups of all clusters behind it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # at run time it has them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from tests.clients.confluent.driver import ConfluentAdmin, ConfluentClient
from tests.clients.contract import OPERATION_TIMEOUT_SECONDS, Admin, Can, ClientError, Message, Reading, Sending
from tests.clients.entrances import Entrance, of_librdkafka
from tests.clients.matrix import Feature
from tests.clients.settling import settled_config
from tests.clients.world import World


@pytest.fixture
def librdkafka(world: World) -> AdminClient:
    """Its admin client as it is, for what the drivers of the other clients do not offer."""
    return AdminClient(of_librdkafka(world.bootstrap))


@pytest.mark.feature(Feature.ADMIN)
async def test_a_topic_is_created_on_its_cluster_and_deleted(admin: Admin, world: World) -> None:
    for cluster, prefix in ((world.c1, "c1-clients"), (world.c2, "c2-clients")):
        topic = world.name(prefix)

        await admin.create_topic(topic, partitions=4)
        await cluster.wait_for_partitions(topic, 4)

        await admin.delete_topic(topic)
        await cluster.wait_for_partitions(topic, 0)


@pytest.mark.feature(Feature.ADMIN)
async def test_topics_of_all_clusters_are_listed_and_described(admin: Admin, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=5)

    assert {on_c1, on_c2} <= await admin.topics()
    for topic in (on_c1, on_c2):
        assert await admin.partitions(topic) == 5
        assert (await admin.topic_config(topic))["cleanup.policy"] == "delete"


@pytest.mark.feature(Feature.ADMIN)
async def test_a_topic_that_nobody_has_is_an_error(admin: Admin, world: World) -> None:
    with pytest.raises(ClientError):
        await admin.delete_topic(world.name("c1-never-made"))


@pytest.mark.feature(Feature.ADMIN)
async def test_clients_see_the_one_address_as_the_only_brokers(admin: Admin, world: World) -> None:
    assert await admin.brokers() == {Entrance.of(world.bootstrap).address}


@pytest.mark.feature(Feature.GROUP_ADMIN)
@pytest.mark.needs(Can.LIST_GROUPS)
async def test_a_group_over_two_clusters_is_listed_with_its_offsets(admin: Admin, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    sent = [Message(topic, f"value-{number}") for number in range(5) for topic in topics]
    client = ConfluentClient(world.bootstrap)
    await client.produce(sent, Sending())
    group = world.name("group")
    await client.consume(Reading(topics, group, len(sent)))

    assert group in await admin.groups()
    assert await admin.committed(group, topics) == {(topic, 0): 5 for topic in topics}


async def test_librdkafka_adds_partitions(librdkafka: AdminClient, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=1)
    growing = librdkafka.create_partitions([NewPartitions(on_c1, 3), NewPartitions(on_c2, 4)])
    await all_done(growing)
    await world.c1.wait_for_partitions(on_c1, 3)
    await world.c2.wait_for_partitions(on_c2, 4)


async def test_librdkafka_changes_settings_one_by_one_and_all_at_once(librdkafka: AdminClient, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    admin = ConfluentAdmin(world.bootstrap)

    one = ConfigEntry("retention.ms", "86400001", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[one]) for topic in topics]
    await all_done(librdkafka.incremental_alter_configs(resources))
    for topic in topics:
        await settled_config(admin, topic, {"retention.ms": "86400001"})

    for topic in topics:  # librdkafka takes one resource at a time here
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"segment.bytes": "1048577"})
        with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
            changing = librdkafka.alter_configs([resource])
        await all_done(changing)
        await settled_config(admin, topic, {"segment.bytes": "1048577", "retention.ms": "604800000"})


async def test_librdkafka_deletes_records_and_groups(librdkafka: AdminClient, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    client = ConfluentClient(world.bootstrap)
    await client.produce([Message(topic, f"value-{n}") for n in range(5) for topic in topics], Sending())
    group = world.name("group")
    await client.consume(Reading(topics, group, 5 * len(topics)))

    deleted = await all_done(librdkafka.delete_records([TopicPartition(topic, 0, 3) for topic in topics]))
    assert {place.topic: records.low_watermark for place, records in deleted.items()} == dict.fromkeys(topics, 3)

    await all_done(librdkafka.delete_consumer_groups([group]))
    admin = ConfluentAdmin(world.bootstrap)
    assert group not in await admin.groups()
    assert set((await admin.committed(group, topics)).values()) <= {-1001}, "no offset is left"


async def test_a_group_in_use_is_not_deleted_and_keeps_its_offsets(librdkafka: AdminClient, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    await ConfluentClient(world.bootstrap).produce([Message(topic, "value") for topic in topics], Sending())
    group = world.name("group")
    settings = {**of_librdkafka(world.bootstrap), "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    try:
        consumer.subscribe(list(topics))
        records = await asyncio.to_thread(consumer.consume, len(topics), OPERATION_TIMEOUT_SECONDS)
        assert {record.topic() for record in records} == set(topics)
        await asyncio.to_thread(consumer.commit, asynchronous=False)

        with pytest.raises(KafkaException) as refused:
            await all_done(librdkafka.delete_consumer_groups([group]))
    finally:
        await asyncio.to_thread(consumer.close)

    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    assert await ConfluentAdmin(world.bootstrap).committed(group, topics) == {(topic, 0): 1 for topic in topics}


async def all_done(futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
    async with asyncio.timeout(OPERATION_TIMEOUT_SECONDS):
        return {key: await asyncio.wrap_future(future) for key, future in futures.items()}
