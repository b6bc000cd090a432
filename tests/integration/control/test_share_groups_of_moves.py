"""Share groups go on at the target of a move: control gives them their starts there, and no record is missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer

from mesh.routing import RoutingTable, UpstreamCluster
from mesh.rpc import record_rules, topic_moves
from services.control.decisions.topic_moves.cut import Groups
from services.control.upstream.connections import Connections
from services.control.upstream.share_starts import share_groups, share_starts
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.control.world import WITHIN, create_topic
from tests.integration.gateway.sharing import set_up

RECORDS = 5


def cluster(name: str, side: KafkaCluster) -> UpstreamCluster:
    return UpstreamCluster(name, (side.bootstrap,), int(name[1:]))


class Sides:
    """A topic with the same records on two clusters, and a share group."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, topic: str, group: str) -> None:
        self.source, self.target, self.topic, self.group = source, target, topic, group

    def write(self, side: KafkaCluster, count: int = RECORDS) -> None:
        producer = Producer({"bootstrap.servers": side.bootstrap, "linger.ms": 0})
        for number in range(count):
            producer.produce(self.topic, str(number).encode(), partition=0)
        assert producer.flush(WITHIN) == 0

    @contextmanager
    def member(self, side: KafkaCluster) -> Iterator[ShareConsumer]:
        config = {"bootstrap.servers": side.bootstrap, "group.id": self.group}
        consumer = ShareConsumer({**config, "share.acknowledgement.mode": "explicit"})
        try:
            consumer.subscribe([self.topic])
            yield consumer
        finally:
            consumer.close()

    def accept(self, side: KafkaCluster, upto: int, wanted: int) -> list[int]:
        """Offsets that a member gets; it accepts those in front of `upto`, and releases the others."""
        read: list[int] = []
        with self.member(side) as consumer:

            def all_are_read() -> bool:
                for each in consumer.poll(0.5):
                    assert each.error() is None, each.error()
                    offset = each.offset()
                    assert offset is not None
                    if offset < upto:
                        consumer.acknowledge(each)
                    else:
                        consumer.acknowledge(each, AcknowledgeType.RELEASE)
                    read.append(offset)
                assert not [fault for fault in consumer.commit_sync(WITHIN).values() if fault is not None]
                return len(set(read)) >= wanted

            wait_until(all_are_read, f"{wanted} records are read", 3 * WITHIN)
        return read

    async def settle(self, side: KafkaCluster, upto: int) -> None:
        """Twice: a cluster stores with an acknowledgement the start as of the one before."""
        await asyncio.to_thread(self.accept, side, upto, RECORDS)
        await asyncio.to_thread(self.accept, side, upto, RECORDS - upto)

    async def starts(self, name: str, side: KafkaCluster) -> dict[int, int]:
        found = await share_starts(cluster(name, side), self.topic, [self.group])
        return found.get(self.group, {})


@pytest.fixture
def sides(topic: str, unique_name: Callable[[str], str], kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Sides:
    sides = Sides(kafka_c1, kafka_c2, topic, unique_name("control-group"))
    for side in (kafka_c1, kafka_c2):
        create_topic(side.bootstrap, topic, 1)
        sides.write(side)
    set_up(kafka_c1.bootstrap, sides.group)
    return sides


@pytest.fixture
async def groups(sides: Sides) -> AsyncIterator[Groups]:
    copy = record_rules.CopySpec(source_cluster="c1", topic=sides.topic, target_cluster="c2", target_topic=sides.topic)
    move = topic_moves.MoveWithRecords(name="topicmoves/1", copy=copy)
    connections = Connections()
    table = RoutingTable(1, [cluster("c1", sides.source), cluster("c2", sides.target)])
    yield Groups(connections, move, table)
    connections.close()


async def _followed(groups: Groups) -> None:
    async with asyncio.timeout(WITHIN):
        while not await groups.follow():
            assert not groups.refused


async def test_a_share_group_that_the_target_does_not_know_goes_on_where_it_was(sides: Sides, groups: Groups) -> None:
    """Without its start the group would begin at the end there, which is Kafka's default, and miss two records."""
    await sides.settle(sides.source, 3)
    assert sides.group not in await share_groups(cluster("c2", sides.target))
    await _followed(groups)
    assert await sides.starts("c2", sides.target) == {0: 3}
    assert set(await asyncio.to_thread(sides.accept, sides.target, RECORDS, 2)) == {3, 4}


async def test_an_older_state_of_the_group_on_the_target_is_brought_up_to_date(sides: Sides, groups: Groups) -> None:
    await asyncio.to_thread(set_up, sides.target.bootstrap, sides.group)
    await sides.settle(sides.target, 1)
    await sides.settle(sides.source, 4)
    await _followed(groups)
    assert await sides.starts("c2", sides.target) == {0: 4}
    assert set(await asyncio.to_thread(sides.accept, sides.target, RECORDS, 1)) == {4}


async def test_a_group_with_members_on_the_target_keeps_an_older_state_and_gets_records_again(
    sides: Sides, groups: Groups
) -> None:
    await asyncio.to_thread(set_up, sides.target.bootstrap, sides.group)
    await sides.settle(sides.target, 1)
    await sides.settle(sides.source, 4)
    with sides.member(sides.target) as consumer:
        await asyncio.to_thread(_joined, consumer)
        await _followed(groups)
        start = (await sides.starts("c2", sides.target))[0]
    assert start == 1


async def test_a_group_with_members_on_the_target_that_would_miss_records_is_refused(
    sides: Sides, groups: Groups
) -> None:
    await asyncio.to_thread(set_up, sides.target.bootstrap, sides.group)
    await sides.settle(sides.target, 4)
    await sides.settle(sides.source, 2)
    with sides.member(sides.target) as consumer:
        await asyncio.to_thread(_joined, consumer)
        assert not await groups.follow()
        assert f"group {sides.group!r} gets no position: 'c2' refuses it: it has members there" in groups.problem
    await _followed(groups)
    assert await sides.starts("c2", sides.target) == {0: 2}


def _joined(consumer: ShareConsumer) -> None:
    """It has got a record, and so a partition."""
    wait_until(lambda: bool(consumer.poll(0.5)), "the member gets a record", 3 * WITHIN)
