"""Every admin client sees one cluster: topics, settings, brokers and groups of all clusters behind it."""

from __future__ import annotations

import pytest

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.contract import Admin, ClientError, Message, Reading, Sending
from tests.clients.world import World


async def test_a_topic_is_created_on_its_cluster_and_deleted(admin: Admin, world: World) -> None:
    for cluster, prefix in ((world.c1, "c1-clients"), (world.c2, "c2-clients")):
        topic = world.name(prefix)

        await admin.create_topic(topic, partitions=4)
        await cluster.wait_for_partitions(topic, 4)

        await admin.delete_topic(topic)
        await cluster.wait_for_partitions(topic, 0)


async def test_topics_of_all_clusters_are_listed_and_described(admin: Admin, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=5)

    assert {on_c1, on_c2} <= await admin.topics()
    for topic in (on_c1, on_c2):
        assert await admin.partitions(topic) == 5
        assert (await admin.topic_config(topic))["cleanup.policy"] == "delete"


async def test_a_topic_that_nobody_has_is_an_error(admin: Admin, world: World) -> None:
    with pytest.raises(ClientError):
        await admin.delete_topic(world.name("c1-never-made"))


async def test_clients_see_the_one_address_as_the_only_brokers(admin: Admin, world: World) -> None:
    assert await admin.brokers() == {world.bootstrap}


async def test_a_group_over_two_clusters_is_listed_with_its_offsets(admin: Admin, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    sent = [Message(topic, f"value-{number}") for number in range(5) for topic in topics]
    client = ConfluentClient(world.bootstrap)
    await client.produce(sent, Sending())
    group = world.name("group")
    await client.consume(Reading(topics, group, len(sent)))

    assert group in await admin.groups()
    assert await admin.committed(group, topics) == {(topic, 0): 5 for topic in topics}
