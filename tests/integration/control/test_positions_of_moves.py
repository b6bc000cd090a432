"""The positions of a topic's groups follow the topic to the target of its move, whoever reads there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, TopicPartition

from mesh.routing import RoutingTable, UpstreamCluster
from mesh.rpc import record_rules, topic_moves
from services.control.decisions.topic_moves.cut import Groups
from services.control.upstream.connections import Connections
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import WITHIN, create_topic

PROTOCOLS = ("classic", "consumer")
KEPT = TopicPartition("", 0, 7, "franz-go keeps the name of a member: 40B")
"""So long that the text fills what an allocator gives: confluent-kafka reads on behind such a text."""


class Sides:
    """A topic on two clusters, and a group."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, topic: str, group: str) -> None:
        self.source, self.target, self.topic, self.group = source, target, topic, group

    async def commit(self, side: KafkaCluster, offset: int) -> None:
        """As an application without group management does. confluent-kafka would add a zero to the text."""
        place = AiokafkaPartition(self.topic, KEPT.partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=side.bootstrap, group_id=self.group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([place])
            await consumer.commit({place: (offset, KEPT.metadata)})
        finally:
            await consumer.stop()

    async def position(self, side: KafkaCluster) -> tuple[int, str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=side.bootstrap)
        await admin.start()
        try:
            told = await admin.list_consumer_group_offsets(self.group)
        finally:
            await admin.close()
        found = told[AiokafkaPartition(self.topic, KEPT.partition)]
        return found.offset, found.metadata.rstrip("\0")

    @contextmanager
    def member(self, side: KafkaCluster, protocol: str = "classic") -> Iterator[None]:
        """Somebody of the group reads another topic there."""
        create_topic(side.bootstrap, other := f"{self.topic}-other", 1)
        consumer = Consumer(
            {
                "bootstrap.servers": side.bootstrap, "group.id": self.group, "group.protocol": protocol,
                "enable.auto.commit": False,
            }
        )  # fmt: skip
        try:
            consumer.subscribe([other])

            def has_joined() -> bool:
                consumer.poll(0.1)
                return bool(consumer.assignment())

            wait_until(has_joined, "the member has its partition", WITHIN)
            yield
        finally:
            consumer.close()


@pytest.fixture
def sides(topic: str, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Sides:
    create_topic(kafka_c1.bootstrap, topic, 1)
    return Sides(kafka_c1, kafka_c2, topic, unique_name("control-group"))


@pytest.fixture
async def groups(sides: Sides) -> AsyncIterator[Groups]:
    clusters = [
        UpstreamCluster(name, (side.bootstrap,), number)
        for number, (name, side) in enumerate((("c1", sides.source), ("c2", sides.target)), 1)
    ]
    copy = record_rules.CopySpec(source_cluster="c1", topic=sides.topic, target_cluster="c2", target_topic=sides.topic)
    move = topic_moves.MoveWithRecords(name="topicmoves/1", copy=copy)
    connections = Connections()
    yield Groups(connections, move, RoutingTable(1, clusters))
    connections.close()


async def test_a_position_that_the_target_refused_is_given_when_the_target_takes_it(
    sides: Sides, groups: Groups
) -> None:
    await sides.commit(sides.source, 7)
    assert not await groups.follow()  # the target does not have the topic yet
    assert sides.group in groups.refused
    create_topic(sides.target.bootstrap, sides.topic, 1)
    await _followed(groups)
    assert await sides.position(sides.target) == (7, KEPT.metadata)
    assert not groups.refused


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_group_with_members_on_the_target_gets_its_position(
    protocol: str, sides: Sides, groups: Groups
) -> None:
    create_topic(sides.target.bootstrap, sides.topic, 1)
    await sides.commit(sides.target, 3)  # of an earlier stay there
    await sides.commit(sides.source, 7)
    with sides.member(sides.target, protocol):
        await _followed(groups)
        assert await sides.position(sides.target) == (7, KEPT.metadata)
    assert not groups.refused


async def _followed(groups: Groups) -> None:
    """As a cut does: a transaction has ended for its producer before its offsets can be read."""
    assert not await groups.follow()
    async with asyncio.timeout(WITHIN):
        while not await groups.follow():
            pass
