"""The producers of a topic at its cut, as real brokers tell them, also a leader that is ahead of its replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from mesh.routing import UpstreamCluster
from mesh.rpc import record_rules, topic_moves
from services.control.decisions.members.rollouts import CutMissedError
from services.control.decisions.topic_moves import producers as at_the_cut
from services.control.decisions.topic_moves.producers import ProducersAtCut
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.ports import free_block
from tests.fixtures.three_brokers import ThreeBrokers
from tests.fixtures.waiting import until

WITHIN_S = 60.0
LEADER, FOLLOWER = 1, 2


class Topic:
    """A topic of one partition, that the first node leads and the second one follows."""

    def __init__(self, cluster: ThreeBrokers, name: str) -> None:
        self.name = name
        self._bootstrap = cluster.bootstrap
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        new = NewTopic(name, 1, replica_assignment=[[LEADER, FOLLOWER]])
        self._admin.create_topics([new])[name].result(WITHIN_S)
        await_leaders(self._admin, name, 1)

    def write(self, records: int, acks: str = "all") -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "acks": acks, "enable.idempotence": acks == "all", "linger.ms": 0}
        )
        for _ in range(records):
            producer.produce(self.name, b"apple")
        assert producer.flush(WITHIN_S) == 0

    def end(self) -> int:
        """The end that readers see."""
        place = TopicPartition(self.name, 0)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return int(self._admin.list_offsets({place: latest})[place].result(WITHIN_S).offset)


BOUNDS = ("ANSWER_S", "ENDS_S")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of a busy machine may take longer than a cut can wait for it."""
    for bound in BOUNDS:
        monkeypatch.setattr(at_the_cut, bound, 5.0)


@pytest.fixture
def apples(three_brokers: ThreeBrokers, unique_name: Callable[[str], str]) -> Topic:
    return Topic(three_brokers, unique_name("at-cut"))


@pytest.fixture
async def producers(apples: Topic, three_brokers: ThreeBrokers) -> AsyncIterator[ProducersAtCut]:
    async with at_cut(apples.name, three_brokers.bootstrap) as found:
        yield found


def at_cut(topic: str, bootstrap: str, partitions: int = 1) -> ProducersAtCut:
    move = topic_moves.MoveWithRecords(
        name="topicmoves/1",
        spec=topic_moves.TopicMoveSpec(topic=topic, target_cluster="c2"),
        copy=record_rules.CopySpec(source_cluster="c1", topic=topic, target_cluster="c2", target_topic=topic),
    )
    return ProducersAtCut(UpstreamCluster("c1", tuple(bootstrap.split(",")), 1), move, partitions)


async def test_each_producer_that_numbers_its_batches_is_told_with_its_last_sequence(
    apples: Topic, producers: ProducersAtCut
) -> None:
    for records in (3, 5):
        await asyncio.to_thread(apples.write, records)
    await asyncio.to_thread(apples.write, 1, "1")
    assert not await producers.look({0: 9})
    assert producers.known == {0: 2}
    told = producers.told
    assert told is not None
    assert (told.topic, told.source_cluster, told.source_topic) == (apples.name, "c1", apples.name)
    [partition] = told.partitions
    assert sorted(each.sequence for each in partition.producers) == [2, 4]
    assert all(each.timestamp_ms > 0 for each in partition.producers)


async def test_a_record_that_replicas_lack_is_told_until_they_have_it(
    apples: Topic, producers: ProducersAtCut, three_brokers: ThreeBrokers
) -> None:
    await asyncio.to_thread(apples.write, 3)
    with three_brokers.node(FOLLOWER).frozen():
        await asyncio.to_thread(apples.write, 1, "1")
        told = await producers.look({0: 3})
        assert f"the leader of {apples.name}-0 on 'c1' ends at 4, and readers see it up to 3" in told
        assert producers.told is None

    async def is_seen() -> bool:
        return await asyncio.to_thread(apples.end) == 4

    await until(is_seen, "the replica has the record", WITHIN_S)
    assert not await producers.look({0: 4})
    assert producers.told is not None


async def test_a_cluster_that_does_not_tell_its_ends_is_named_before_a_gateway_holds(apples: Topic) -> None:
    with pytest.raises(CutMissedError, match=f"the leaders of {apples.name} on 'c1' do not tell the ends"):
        async with at_cut(apples.name, f"127.0.0.1:{free_block(1)}"):
            pass


async def test_no_cut_is_made_while_leaders_do_not_tell_their_ends(
    kafka_c1: KafkaCluster, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = unique_name("at-cut")
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, 3, 1)])[topic].result, WITHIN_S)
    await asyncio.to_thread(await_leaders, admin, topic, 3)
    nothing = {0: 0, 1: 0, 2: 0}
    async with at_cut(topic, kafka_c1.bootstrap, 3) as producers:
        assert not await producers.look(nothing)
        assert producers.known == nothing
        with kafka_c1.frozen(), monkeypatch.context() as patched:
            for bound in BOUNDS:
                patched.setattr(at_the_cut, bound, 0.5)
            assert "do not tell the ends of their logs" in await producers.look(nothing)
        assert producers.known == {}

        async def answers() -> bool:
            return not await producers.look(nothing)

        await until(answers, "the leaders answer again", WITHIN_S)


async def test_more_producers_of_a_partition_than_gateways_remember_are_counted(
    apples: Topic, producers: ProducersAtCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_the_cut, "OF_A_PARTITION", 2)
    for records in (1, 2, 3):
        await asyncio.to_thread(apples.write, records)
    assert not await producers.look({0: 6})
    assert producers.told is not None
    [partition] = producers.told.partitions
    assert sorted(each.sequence for each in partition.producers) == [1, 2], "the last two"
    assert producers.known == {0: 3}
    monkeypatch.setattr(at_the_cut, "OF_ALL", 1)
    assert not await producers.look({0: 6})
    assert not producers.told.partitions, "gateways ask about a partition without a place"
