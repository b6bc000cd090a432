"""A group over topics of two clusters commits, resumes and shares its work as on one cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.clients.confluent.driver import ConfluentAdmin, ConfluentClient
from tests.clients.contract import Can, Client, Message, Reading, Sending
from tests.clients.matrix import Feature
from tests.clients.world import World

RECORDS_PER_TOPIC = 50
FIRST_ROUND = 35


@pytest.mark.feature(Feature.GROUP)
@pytest.mark.needs(Can.CONSUME)
async def test_a_group_resumes_exactly_where_it_committed(client: Client, world: World) -> None:
    topics = await world.topic_on_each()
    sent = [
        Message(topic, f"value-{number}", f"key-{number}") for number in range(RECORDS_PER_TOPIC) for topic in topics
    ]
    await ConfluentClient(world.bootstrap).produce(sent, Sending())
    group = world.name("group")

    first = await client.consume(Reading(topics, group, FIRST_ROUND))
    rest = await client.consume(Reading(topics, group, len(sent) - FIRST_ROUND))

    expected = Counter((message.topic, message.value) for message in sent)
    assert Counter((record.topic, record.value) for record in first + rest) == expected
    ends: dict[tuple[str, int], int] = {}
    for record in first + rest:
        at = record.topic, record.partition
        ends[at] = max(ends.get(at, 0), record.offset + 1)
    assert await ConfluentAdmin(world.bootstrap).committed(group, topics) == ends


@pytest.mark.feature(Feature.PATTERN)
@pytest.mark.needs(Can.CONSUME, Can.SUBSCRIBE_TO_PATTERN)
async def test_a_pattern_finds_the_topics_of_both_clusters(client: Client, world: World) -> None:
    topics = await world.topic_on_each(partitions=1)
    sent = [Message(topic, f"value-{number}") for number in range(10) for topic in topics]
    await ConfluentClient(world.bootstrap).produce(sent, Sending())
    of_this_test = "|".join(topic.removeprefix("c1-").removeprefix("c2-") for topic in topics)

    records = await client.consume(Reading((f"^c[12]-({of_this_test})$",), world.name("group"), len(sent)))

    assert Counter(record.topic for record in records) == dict.fromkeys(topics, 10)


@pytest.mark.feature(Feature.GROUP)
@pytest.mark.needs(Can.CONSUME)
async def test_another_client_takes_the_group_over(client: Client, world: World) -> None:
    topics = await world.topic_on_each()
    sent = [
        Message(topic, f"value-{number}", f"key-{number}") for number in range(RECORDS_PER_TOPIC) for topic in topics
    ]
    await client.produce(sent, Sending())
    group = world.name("group")

    before = await client.consume(Reading(topics, group, FIRST_ROUND))
    after = await ConfluentClient(world.bootstrap).consume(Reading(topics, group, len(sent) - FIRST_ROUND))

    positions = [record.position for record in before + after]
    assert len(set(positions)) == len(positions) == len(sent)
