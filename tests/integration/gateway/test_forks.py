"""A topic that begins with another one's records: clients read both as one log, and the other topic sees nothing."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from mesh.stitches import LogPart, StitchedLog
from services.gateway import metrics
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import FetchRequest, FetchResponse
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.member import PATIENCE_S, run_member
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.talking import talking_to
from tests.integration.gateway.test_stitched_logs import (
    ANSWER_S,
    EACH,
    EARLIEST,
    LATEST,
    PARTITIONS,
    Stitched,
    aiokafka_reads,
    has_new_leaders,
    librdkafka_reads,
    numbered,
    offsets,
    put,
    reads_once,
    strange,
    written,
)
from tests.integration.gateway.transacting import LibrdkafkaTransacting, await_markers, read_committed


@dataclass(slots=True)
class Forked:
    """`apples` is on c1, and `staging` is its fork with own records on c1 or c2."""

    apples: Stitched
    staging: Stitched

    @property
    def gateway(self) -> RunningGateway:
        return self.apples.gateway

    def fork(self, cluster: str, *, bytes_per_second: int = 0) -> None:
        """At the ends of now."""
        ends = tuple(self.apples.offsets(LATEST))
        none = (0,) * PARTITIONS
        past = LogPart("c1", self.apples.topic, 1, none, none, is_past=True, topic_id=self.id_of_past())
        own = LogPart(cluster, self.staging.topic, 1, ends, ends)
        log = StitchedLog(self.staging.topic, (past, own), self.apples.topic, bytes_per_second)
        self.gateway.switch(self.apples.rules.stitched(log))

    def id_of_past(self) -> bytes:
        kafka = AdminClient({"bootstrap.servers": self.apples.clusters["c1"].bootstrap})
        asked: Any = kafka.describe_topics(TopicCollection([self.apples.topic]))
        found = asked[self.apples.topic].result(ANSWER_S).topic_id
        halves = found.get_most_significant_bits(), found.get_least_significant_bits()
        return b"".join(half.to_bytes(8, "big", signed=True) for half in halves)


@pytest.fixture(params=["c1", "c2"])
def forked(
    request: pytest.FixtureRequest,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
) -> Forked:
    topic = unique_name("apples")
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    create_topic(kafka_c1, topic, PARTITIONS)
    create_topic(clusters[request.param], f"{topic}-staging", PARTITIONS)
    rules.to("c1", [topic])
    gateway = start_gateway(rules.to(request.param, [f"{topic}-staging"]))
    apples, staging = (Stitched(name, gateway, rules, clusters, []) for name in (topic, f"{topic}-staging"))
    return Forked(apples, staging)


def cluster_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["forked"])


def test_clients_read_the_past_and_the_own_records_as_one_log(forked: Forked, request: pytest.FixtureRequest) -> None:
    values = written(forked.apples, "past", 60)
    forked.fork(cluster_of(request))
    later = written(forked.apples, "production goes on", 20)
    own = written(forked.staging, "own", 40)
    address, staging, apples = forked.staging.address, forked.staging.topic, forked.apples.topic
    assert (forked.staging.offsets(EARLIEST), forked.staging.offsets(LATEST)) == ([0, 0], [100, 100])
    past = metrics.stitched_requests.labels("past")._value.get()
    assert librdkafka_reads(address, staging, [100, 100]) == [numbered(values + own)] * PARTITIONS
    assert metrics.stitched_requests.labels("past")._value.get() > past
    assert asyncio.run(aiokafka_reads(address, staging, [100, 100])) == [numbered(values + own)] * PARTITIONS
    told = run_member("consumer", address, f"{staging}-group", [staging], 100)
    assert not told.faults
    assert sorted(told.values)[::PARTITIONS] == sorted(values + own)
    assert librdkafka_reads(address, apples, [80, 80]) == [numbered(values + later)] * PARTITIONS
    there = forked.apples.clusters["c1"].bootstrap
    assert offsets(there, apples, LATEST) == [80, 80], "the past's cluster got no record of the fork"


def test_one_consumer_reads_the_fork_and_the_topic_that_it_is_from(
    forked: Forked, request: pytest.FixtureRequest
) -> None:
    """One request to a broker can't name a log twice."""
    values = written(forked.apples, "past", 300)
    forked.fork(cluster_of(request))
    own = written(forked.staging, "own", 20)
    topics = {forked.apples.topic: values, forked.staging.topic: values + own}
    consumer = Consumer(
        {
            "bootstrap.servers": forked.apples.address,
            "group.id": f"{forked.apples.topic}-both",
            "auto.offset.reset": "error",
            "max.partition.fetch.bytes": 1024,
            "fetch.wait.max.ms": 100,
        }
    )
    found: dict[tuple[str, int], list[tuple[int, str]]] = {(t, p): [] for t in topics for p in range(PARTITIONS)}
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in found])
    deadline = time.monotonic() + 2 * ANSWER_S
    try:
        while any(len(each) < len(topics[topic]) for (topic, _), each in found.items()):
            assert time.monotonic() < deadline, {slot: len(each) for slot, each in found.items()}
            for message in consumer.consume(500, 0.05):
                assert message.error() is None, message.error()
                slot = (message.topic() or "", message.partition() or 0)
                found[slot].append((message.offset() or 0, (message.value() or b"").decode()))
    finally:
        consumer.close()
    assert found == {(topic, partition): numbered(topics[topic]) for topic, partition in found}
    told = run_member("consumer", forked.apples.address, f"{forked.apples.topic}-java", [*topics], len(values + own))
    assert not told.faults
    assert set(told.values) == {*values, *own}


def test_groups_and_times_count_over_the_past(forked: Forked, request: pytest.FixtureRequest) -> None:
    producer = Producer({"bootstrap.servers": forked.apples.address})
    for number in range(4):
        producer.produce(forked.apples.topic, str(number), partition=0, timestamp=1000 * (number + 1))
    assert producer.flush(ANSWER_S) == 0
    forked.fork(cluster_of(request))
    for topic, timestamp in ((forked.apples.topic, 5000), (forked.staging.topic, 7000)):
        producer.produce(topic, "later", partition=0, timestamp=timestamp)
        assert producer.flush(ANSWER_S) == 0
    admin = AdminClient({"bootstrap.servers": forked.apples.address})

    def at(topic: str, *times: int) -> list[int]:
        return [offsets(forked.apples.address, topic, OffsetSpec.for_timestamp(each))[0] for each in times]

    assert at(forked.staging.topic, 500, 2500, 4500, 7500) == [0, 2, 4, -1]
    assert at(forked.apples.topic, 500, 2500, 4500, 7500) == [0, 2, 4, -1]
    both: dict[TopicPartition, Any] = {
        TopicPartition(each.topic, 0): EARLIEST for each in (forked.apples, forked.staging)
    }
    assert [each.result(ANSWER_S).offset for each in admin.list_offsets(both).values()] == [0, 0]
    for topic, position in ((forked.apples.topic, 1), (forked.staging.topic, 3)):
        group = Consumer({"bootstrap.servers": forked.apples.address, "group.id": f"{forked.apples.topic}-g"})
        group.commit(offsets=[TopicPartition(topic, 0, position)], asynchronous=False)
        group.close()
    group = Consumer({"bootstrap.servers": forked.apples.address, "group.id": f"{forked.apples.topic}-g"})
    places = [TopicPartition(forked.apples.topic, 0), TopicPartition(forked.staging.topic, 0)]
    assert [each.offset for each in group.committed(places, ANSWER_S)] == [1, 3]
    group.close()


def test_the_past_of_a_fork_can_not_be_deleted_and_goes_with_no_deletion_of_the_fork(
    forked: Forked, request: pytest.FixtureRequest
) -> None:
    values = written(forked.apples, "past", 20)
    forked.fork(cluster_of(request))
    written(forked.staging, "own", 20)
    admin = AdminClient({"bootstrap.servers": forked.apples.address})
    for offset in (5, 30, -1):
        asked = TopicPartition(forked.staging.topic, 0, offset)
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            admin.delete_records([asked])[asked].result(ANSWER_S)
    assert forked.apples.offsets(EARLIEST) == [0, 0]
    assert forked.staging.offsets(EARLIEST) == [0, 0]
    admin.delete_topics([forked.staging.topic])[forked.staging.topic].result(ANSWER_S)
    own = AdminClient({"bootstrap.servers": forked.staging.clusters[cluster_of(request)].bootstrap})
    wait_until(lambda: forked.staging.topic not in own.list_topics(timeout=ANSWER_S).topics, "the fork is gone")
    assert librdkafka_reads(forked.apples.address, forked.apples.topic, [20, 20]) == [numbered(values)] * PARTITIONS
    create = own.create_topics([NewTopic(forked.staging.topic, PARTITIONS)])  # the fixture deletes it
    create[forked.staging.topic].result(ANSWER_S)


def test_transactions_of_the_past_are_seen_as_they_ended(forked: Forked, request: pytest.FixtureRequest) -> None:
    expected: list[str] = []
    for topic in (forked.apples.topic, forked.staging.topic):
        if topic == forked.staging.topic:
            forked.fork(cluster_of(request))
        producer = LibrdkafkaTransacting(forked.apples.address, f"{forked.apples.topic}-id")
        producer.init()
        for number, commit in enumerate((True, False, True)):
            values = [f"{topic}, {number}, {each}" for each in range(5)]
            producer.begin()
            producer.send(topic, *values)
            assert not producer.flush()
            (producer.commit if commit else producer.abort)()
            expected += values if commit else []
        producer.close()
        cluster = "c1" if topic == forked.apples.topic else cluster_of(request)
        await_markers(forked.apples.clusters[cluster].bootstrap, topic)
    assert read_committed(forked.apples.address, forked.staging.topic) == sorted(expected)


@pytest.mark.parametrize("forked", ["c2"], indirect=True)
def test_reads_of_the_past_have_a_bound_and_others_go_on(forked: Forked, request: pytest.FixtureRequest) -> None:
    """Kafka measures over ten seconds, so eleven seconds' worth comes at once, and the rest takes its time."""
    size, count, bound = 1000, 150, 20_000
    producer = Producer({"bootstrap.servers": forked.apples.address, "batch.num.messages": 5})
    for _ in range(count):
        for partition in range(PARTITIONS):
            producer.produce(forked.apples.topic, b"x" * size, partition=partition)
    assert producer.flush(ANSWER_S) == 0
    forked.fork(cluster_of(request), bytes_per_second=bound)
    began = time.monotonic()
    found = librdkafka_reads(forked.apples.address, forked.staging.topic, [count, count])
    took = time.monotonic() - began
    assert [[offset for offset, _ in each] for each in found] == [[*range(count)]] * PARTITIONS
    assert took > 3, f"{PARTITIONS * count * size} bytes came in {took:.1f} s, and the bound is {bound} a second"
    librdkafka_reads(forked.apples.address, forked.apples.topic, [count, count])
    reads = forked.gateway.gateway.mesh.memory.past_reads
    has_waited = [reads.wait_s(each.topic, now=0.0) > 0 for each in (forked.staging, forked.apples)]
    assert has_waited == [True, False], "readers of the topic itself have no such bound"


@pytest.mark.parametrize("forked", ["c2"], indirect=True)
def test_records_of_a_topic_that_was_made_anew_are_no_past(forked: Forked, create_topic: CreateTopic) -> None:
    """The gateway knows the old topic, and has heard nothing of the new one."""
    topic, cluster = forked.apples.topic, forked.apples.clusters["c1"]
    written(forked.apples, "past", 20)
    forked.fork("c2")
    own = written(forked.staging, "own", 10)
    assert asyncio.run(fetched(forked.staging)) == [(ErrorCode.NONE, True)] * PARTITIONS
    kafka = AdminClient({"bootstrap.servers": cluster.bootstrap})
    kafka.delete_topics([topic])[topic].result(ANSWER_S)
    wait_until(lambda: topic not in kafka.list_topics(timeout=ANSWER_S).topics, "the topic is gone")
    kafka.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(ANSWER_S)
    strange(cluster, topic, 10)
    refused = [(ErrorCode.NOT_LEADER_OR_FOLLOWER, False)] * PARTITIONS
    assert asyncio.run(fetched(forked.staging)) == refused
    assert asyncio.run(fetched(forked.staging)) == refused
    consumer = Consumer({"bootstrap.servers": forked.staging.address, "group.id": f"{topic}-g"})
    consumer.assign([TopicPartition(forked.staging.topic, 0, 20)])
    found = [message.value() for message in consumer.consume(10, ANSWER_S)]
    consumer.close()
    assert found == [value.encode() for value in own], "the own records are there"


async def fetched(of: Stitched) -> list[tuple[int, bool]]:
    """The error of each partition at offset 0, and whether records came."""
    wanted = [FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20) for partition in range(PARTITIONS)]
    request = FetchRequest(
        max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(of.topic, partitions=wanted)]
    )
    request.session_epoch = -1
    async with talking_to(of.address) as client:
        answer = await client.ask(request, 12, FetchResponse)
    return [(each.error_code, bool(each.records)) for topic in answer.responses for each in topic.partitions]


@pytest.mark.parametrize("forked", ["c2"], indirect=True)
def test_a_java_consumer_of_a_fork_finds_no_truncation_when_leaders_change(
    forked: Forked, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    values = put(forked.apples, "past")
    has_new_leaders(kafka_c1, forked.apples.topic)
    values += put(forked.apples, "past of a new epoch")
    forked.fork("c2")
    with ThreadPoolExecutor(1) as background:
        reading = background.submit(reads_once, forked.staging, "meanwhile", 4 * EACH)
        values += put(forked.staging, "own")
        has_new_leaders(kafka_c2, forked.staging.topic)
        values += put(forked.staging, "own of a new epoch")
        assert reading.result(ANSWER_S + PATIENCE_S) == sorted(values)
    assert reads_once(forked.staging, "afterwards", 4 * EACH) == sorted(values)
