"""Every client writes to topics of both clusters through one address, and gets back what it wrote."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.clients.confluent.driver import ConfluentClient
from tests.clients.contract import Acks, Can, Client, Isolation, Message, Reading, Received, Sending
from tests.clients.matrix import Feature
from tests.clients.world import World

RECORDS_PER_TOPIC_AND_COMPRESSION = 20
HEADERS = (("origin", "test"), ("trace", "Ähre-7"))
# A minute apart and in the past, so that none can be mistaken for the time of sending; and not so long ago that brokers
# would delete them for their age while a test still reads.
FIRST_TIMESTAMP_MS = (int(time.time()) - 86_400) * 1000
TIMESTAMP_STEP_MS = 60_000


def messages(client: Client, topics: Sequence[str], count: int, mark: str) -> list[Message]:
    """`count` messages for each topic in turn, all with different values, few enough keys for each to repeat."""
    return [
        Message(
            topic=topic,
            value=f"{mark}-{number}-ä" + "x" * 200,
            key=f"key-{number % 7}",
            headers=HEADERS if Can.SEND_HEADERS in client.can else (),
            timestamp_ms=FIRST_TIMESTAMP_MS + number * TIMESTAMP_STEP_MS,
        )
        for number in range(count)
        for topic in topics
    ]


def sent_as(message: Message) -> tuple[object, ...]:
    return message.topic, message.key, message.value, message.headers


def received_as(record: Received) -> tuple[object, ...]:
    return record.topic, record.key, record.value, record.headers


@pytest.mark.feature(Feature.PRODUCE)
async def test_records_of_two_clusters_come_back_as_they_were_sent(
    client: Client, reader: Client, world: World
) -> None:
    on_c1, on_c2 = await world.topic_on_each()
    sent: list[Message] = []
    deliveries = []
    for compression in sorted(client.compressions):
        batch = messages(client, (on_c1, on_c2), RECORDS_PER_TOPIC_AND_COMPRESSION, mark=compression)
        deliveries += await client.produce(batch, Sending(compression=compression))
        sent += batch

    records = await reader.consume(Reading((on_c1, on_c2), group=world.name("group"), count=len(sent)))

    assert Counter(map(received_as, records)) == Counter(map(sent_as, sent))
    assert Counter(delivery.value for delivery in deliveries) == Counter(message.value for message in sent)
    if Can.SET_TIMESTAMPS in client.can:
        timestamps = {(record.topic, record.value): record.timestamp_ms for record in records}
        assert timestamps == {(message.topic, message.value): message.timestamp_ms for message in sent}
    if Can.TELL_OFFSETS in client.can:
        told = {(delivery.topic, delivery.partition, delivery.offset): delivery.value for delivery in deliveries}
        assert told == {record.position: record.value for record in records}
    # What the mesh showed is what the clusters hold.
    stored = await world.c1.read(on_c1) + await world.c2.read(on_c2)
    assert sorted(stored, key=lambda record: record.position) == sorted(records, key=lambda record: record.position)


@pytest.mark.feature(Feature.PRODUCE)
async def test_order_within_a_key_is_kept(client: Client, reader: Client, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each()
    sent = messages(client, (on_c1, on_c2), 100, mark="order")

    await client.produce(sent, Sending())

    records = await reader.consume(Reading((on_c1, on_c2), group=world.name("group"), count=len(sent)))
    for topic in (on_c1, on_c2):
        for key in {message.key for message in sent}:
            wrote = [message.value for message in sent if (message.topic, message.key) == (topic, key)]
            assert [record.value for record in records if (record.topic, record.key) == (topic, key)] == wrote


@pytest.mark.feature(Feature.PRODUCE)
@pytest.mark.parametrize("acks", Acks)
async def test_acks(client: Client, world: World, acks: Acks) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=1)
    sent = messages(client, (on_c1, on_c2), 10, mark=f"acks-{acks}")

    deliveries = await client.produce(sent, Sending(acks=acks))

    assert len(deliveries) == len(sent)
    # Reading awaits the records that nobody acknowledged, too.
    reader = ConfluentClient(world.bootstrap)
    records = await reader.consume(Reading((on_c1, on_c2), group=world.name("group"), count=len(sent)))
    assert Counter(record.value for record in records) == Counter(message.value for message in sent)


@pytest.mark.feature(Feature.COMMITTED)
@pytest.mark.needs(Can.CONSUME, Can.READ_COMMITTED)
async def test_read_committed_leaves_out_aborted_transactions(client: Client, world: World) -> None:
    on_c1, on_c2 = await world.topic_on_each(partitions=1)
    transactions = {"first": True, "aborted": False, "last": True}
    await world.c1.write_transactions(on_c1, transactions)
    await world.c2.write_transactions(on_c2, transactions)

    async def values(isolation: Isolation, count: int) -> Counter[str]:
        reading = Reading((on_c1, on_c2), world.name("group"), count, isolation)
        return Counter(record.value for record in await client.consume(reading))

    assert await values(Isolation.READ_COMMITTED, 4) == Counter({"first": 2, "last": 2})
    assert await values(Isolation.READ_UNCOMMITTED, 6) == Counter({"first": 2, "aborted": 2, "last": 2})
