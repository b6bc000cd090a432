"""A topic whose old records stay on the old cluster: clients see one log with unbroken offsets."""

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its own documented way

from mesh.rpc import routing, topic_moves
from mesh.stitches import LogPart, StitchedLog
from mesh.topic_logs.brokers import Brokers
from services.gateway import metrics
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.member import PATIENCE_S, run_member
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.test_moves import SteadyProducer, wait_for_progress
from tests.integration.gateway.transacting import (
    LibrdkafkaTransacting,
    Open,
    TransactionError,
    await_markers,
    read_committed,
)

PARTITIONS = 2
ANSWER_S = 25.0
STRANGE = 7
"""Records that lie on c2 before the topic comes there, so that offsets differ."""
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Stitched:
    """A topic that is on c1 at first, and a gateway in front."""

    topic: str
    gateway: RunningGateway
    rules: Rules
    clusters: dict[str, KafkaCluster]
    parts: list[LogPart] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.gateway.address

    def cut(self, cluster: str) -> None:
        """As control does it: hold, take the old log's producers and the ends of both logs, switch."""
        self.gateway.hold(self.rules.to(cluster, [self.topic]))
        last = self.parts[-1]
        producers = asyncio.run(producers_at_cut(self.clusters[last.cluster], last.cluster, self.topic))
        ends = offsets(self.clusters[last.cluster].bootstrap, self.topic, LATEST)
        bases = offsets(self.clusters[cluster].bootstrap, self.topic, LATEST)
        starts = tuple(end + shift for end, shift in zip(ends, last.shifts, strict=True))
        shifts = tuple(start - base for start, base in zip(starts, bases, strict=True))
        visit = 1 + sum(part.cluster == cluster for part in self.parts)
        self.parts.append(LogPart(cluster, self.topic, visit, starts, shifts))
        self.gateway.switch(self.rules.stitched(StitchedLog(self.topic, tuple(self.parts))), producers)

    def offsets(self, spec: object) -> list[int]:
        return offsets(self.address, self.topic, spec)


async def producers_at_cut(cluster: KafkaCluster, name: str, topic: str) -> topic_moves.TopicMoveProducers:
    event = topic_moves.TopicMoveProducers(topic=topic, source_cluster=name, source_topic=topic)
    spec = routing.ClusterSpec(bootstrap_servers=[cluster.bootstrap])
    async with Brokers(spec, "test.cut") as brokers, asyncio.timeout(ANSWER_S):
        await brokers.partitions(topic)
        for number, known in (await brokers.producers_of(topic, range(PARTITIONS))).items():
            last = [topic_moves.TopicMoveProducer(**each._asdict()) for each in known if each.sequence >= 0]
            event.partitions.add(partition=number, producers=last)
    return event


def offsets(bootstrap: str, topic: str, spec: object) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked: dict[TopicPartition, Any] = {TopicPartition(topic, partition): spec for partition in range(PARTITIONS)}
    told = admin.list_offsets(asked)
    return [told[partition].result(ANSWER_S).offset for partition in asked]


@pytest.fixture
def apples(
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    request: pytest.FixtureRequest,
) -> Stitched:
    topic = unique_name("apples")
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster, topic, PARTITIONS)
    strange(kafka_c2, topic, STRANGE)
    gateway = start_gateway(rules.to("c1", [topic]), **getattr(request, "param", {}))
    none = (0,) * PARTITIONS
    return Stitched(topic, gateway, rules, {"c1": kafka_c1, "c2": kafka_c2}, [LogPart("c1", topic, 1, none, none)])


def strange(cluster: KafkaCluster, topic: str, count: int) -> None:
    """Somebody writes to a cluster beside the mesh."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(topic, f"strange {number}", partition=partition, timestamp=1)
    assert producer.flush(ANSWER_S) == 0


def written(stitched: Stitched, name: str, count: int) -> list[str]:
    """Writes values to each partition, through the gateway."""
    values = [f"{name} {number}" for number in range(count)]
    producer = Producer({"bootstrap.servers": stitched.address, "enable.idempotence": True, "linger.ms": 2})
    delivered: list[Message] = []
    faults: list[KafkaError] = []

    def hear(error: KafkaError | None, message: Message) -> None:
        faults.append(error) if error else delivered.append(message)

    before = stitched.offsets(LATEST)
    for partition in range(PARTITIONS):
        for value in values:
            producer.produce(stitched.topic, value, partition=partition, on_delivery=hear)
    assert producer.flush(ANSWER_S) == 0
    assert not faults
    for partition in range(PARTITIONS):
        told = sorted(message.offset() or 0 for message in delivered if message.partition() == partition)
        assert told == list(range(before[partition], before[partition] + count)), "offsets go on"
    return values


def librdkafka_reads(address: str, topic: str, until: list[int], **config: object) -> list[list[tuple[int, str]]]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reads-alone", "auto.offset.reset": "error", **config}
    )
    found: list[list[tuple[int, str]]] = [[] for _ in until]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    deadline = time.monotonic() + ANSWER_S
    try:
        while any(not each or each[-1][0] < end - 1 for each, end in zip(found, until, strict=True)):
            assert time.monotonic() < deadline, [each[-1:] for each in found]
            for message in consumer.consume(500, 0.05):
                assert message.error() is None, message.error()
                found[message.partition() or 0].append((message.offset() or 0, (message.value() or b"").decode()))
    finally:
        consumer.close()
    return found


async def aiokafka_reads(address: str, topic: str, until: list[int]) -> list[list[tuple[int, str]]]:
    found: list[list[tuple[int, str]]] = [[] for _ in until]
    partitions = [AiokafkaPartition(topic, partition) for partition in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(bootstrap_servers=address, auto_offset_reset="none", enable_auto_commit=False)
    async with asyncio.timeout(ANSWER_S), consumer:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        while any(not each or each[-1][0] < end - 1 for each, end in zip(found, until, strict=True)):
            batch = await consumer.getmany(timeout_ms=100)
            for partition, records in batch.items():
                found[partition.partition] += [(record.offset, record.value.decode()) for record in records]
    return found


def numbered(values: Iterable[str]) -> list[tuple[int, str]]:
    return list(enumerate(values))


def test_clients_read_one_log_over_three_cuts(apples: Stitched) -> None:
    values = written(apples, "on c1", 60)
    for cluster in ("c2", "c1", "c2"):
        apples.cut(cluster)
        strange(apples.clusters[apples.parts[-2].cluster], apples.topic, 3)  # behind the end of the old part
        values += written(apples, f"on {cluster}, part {len(apples.parts)}", 40)
    assert apples.offsets(EARLIEST) == [0, 0]
    assert apples.offsets(LATEST) == [180, 180]
    old = metrics.stitched_requests.labels("old")._value.get()
    assert librdkafka_reads(apples.address, apples.topic, [180, 180]) == [numbered(values)] * PARTITIONS
    assert asyncio.run(aiokafka_reads(apples.address, apples.topic, [180, 180])) == [numbered(values)] * PARTITIONS
    told = run_member("consumer", apples.address, f"{apples.topic}-group", [apples.topic], len(values))
    assert not told.faults
    assert sorted(told.values)[::PARTITIONS] == sorted(values)
    assert metrics.stitched_requests.labels("old")._value.get() > old


def test_a_producer_goes_on_over_cuts_and_nothing_is_lost_or_doubled(apples: Stitched) -> None:
    steady = SteadyProducer(apples.address, apples.topic, "steady", **{"enable.idempotence": True})
    try:
        for cluster in ("c2", "c1", "c2"):
            wait_for_progress([steady], 100)
            apples.cut(cluster)
        wait_for_progress([steady], 100)
    finally:
        steady.stop()
    assert not steady.faults
    stored = librdkafka_reads(apples.address, apples.topic, apples.offsets(LATEST))
    assert [[offset for offset, _ in each] for each in stored] == [list(range(len(each))) for each in stored]
    assert sorted(value for each in stored for _, value in each) == sorted(steady.acknowledged)


@pytest.mark.parametrize("apples", [{"request_timeout_s": 4.0}], indirect=True, ids=["soon given up"])
def test_new_records_come_while_the_old_cluster_is_away_and_the_old_ones_afterwards(apples: Stitched) -> None:
    old = written(apples, "old", 30)
    apples.cut("c2")
    consumer = Consumer(
        {
            "bootstrap.servers": apples.address,
            "group.id": "reads-alone",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[tuple[int, str]]] = {0: [], 1: []}

    def read_on(wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2 * ANSWER_S
        while not wanted():
            assert time.monotonic() < deadline, found
            for message in consumer.consume(500, 0.05):
                assert message.error() is None, message.error()
                found[message.partition() or 0].append((message.offset() or 0, (message.value() or b"").decode()))

    try:
        with apples.clusters["c1"].frozen():
            consumer.assign([TopicPartition(apples.topic, 0, 0), TopicPartition(apples.topic, 1, 30)])
            new = written(apples, "new", 30)
            read_on(lambda: len(found[1]) == 30)
            assert not found[0]
        read_on(lambda: len(found[0]) == 60)
    finally:
        consumer.close()
    assert found == {0: numbered(old + new), 1: numbered(old + new)[30:]}


def test_a_time_is_found_in_the_part_that_has_it(apples: Stitched) -> None:
    producer = Producer({"bootstrap.servers": apples.address})

    def at(*times: int) -> None:
        for timestamp in times:
            producer.produce(apples.topic, str(timestamp), partition=0, timestamp=timestamp)
            assert producer.flush(ANSWER_S) == 0

    at(1000, 2000, 3000)
    apples.cut("c2")
    at(4000, 5000)
    found = {
        wanted: apples.offsets(OffsetSpec.for_timestamp(wanted))[0] for wanted in (500, 2000, 2500, 3500, 5000, 6000)
    }
    assert found == {500: 0, 2000: 1, 2500: 2, 3500: 3, 5000: 4, 6000: -1}
    assert apples.offsets(OffsetSpec.max_timestamp())[0] == 4  # type: ignore[no-untyped-call]


def test_a_group_goes_on_where_it_was_in_the_old_part(apples: Stitched) -> None:
    values = written(apples, "old", 50)
    apples.cut("c2")
    values += written(apples, "new", 50)
    group = {
        "bootstrap.servers": apples.address,
        "group.id": f"{apples.topic}-group",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    first = Consumer(group)
    first.commit(offsets=[TopicPartition(apples.topic, p, 20 + 40 * p) for p in range(PARTITIONS)], asynchronous=False)
    first.close()
    second = Consumer(group)
    second.subscribe([apples.topic])
    found: dict[int, list[tuple[int, str]]] = {0: [], 1: []}
    deadline = time.monotonic() + 2 * ANSWER_S
    try:
        while sum(map(len, found.values())) < 80 + 40:
            assert time.monotonic() < deadline, found
            for message in second.consume(500, 0.05):
                assert message.error() is None, message.error()
                found[message.partition() or 0].append((message.offset() or 0, (message.value() or b"").decode()))
    finally:
        second.close()
    assert found == {0: numbered(values)[20:], 1: numbered(values)[60:]}


def test_readers_of_committed_records_see_none_of_an_aborted_transaction_in_either_part(apples: Stitched) -> None:
    expected: list[str] = []
    for cluster in ("c1", "c2", "c1"):
        if cluster != apples.parts[-1].cluster:
            apples.cut(cluster)
        producer = LibrdkafkaTransacting(apples.address, f"{apples.topic}-id")
        producer.init()
        for number, commit in enumerate((True, False, True)):
            values = [f"part {len(apples.parts)}, {number}, {each}" for each in range(5)]
            producer.begin()
            producer.send(apples.topic, *values)
            assert not producer.flush()
            (producer.commit if commit else producer.abort)()
            expected += values if commit else []
        producer.close()
        await_markers(apples.clusters[cluster].bootstrap, apples.topic)
    assert read_committed(apples.address, apples.topic) == sorted(expected)
    told = run_member(
        "consumer", apples.address, f"{apples.topic}-g", [apples.topic], 30, isolation_level="read_committed"
    )
    assert sorted(told.values) == sorted(expected)


def test_a_transaction_that_ends_after_the_cut_is_seen_as_it_ended(apples: Stitched) -> None:
    """Its markers are behind the end of the old part, so readers do not get them."""
    expected: list[str] = []
    for cluster, commit in (("c2", False), ("c1", True)):
        producer = LibrdkafkaTransacting(apples.address, f"{apples.topic}-id")
        producer.init()
        producer.begin()
        producer.send(apples.topic, *(before := [f"before {cluster} {each}" for each in range(5)]))
        assert not producer.flush()
        apples.cut(cluster)
        behind = written(apples, f"behind {cluster}", 5)
        (producer.commit if commit else producer.abort)()
        producer.close()
        expected += behind * PARTITIONS + (before if commit else [])
        for each in apples.clusters.values():
            await_markers(each.bootstrap, apples.topic)
    assert read_committed(apples.address, apples.topic) == sorted(expected)


def test_records_are_deleted_in_the_old_part_first_and_the_log_begins_behind(apples: Stitched) -> None:
    values = written(apples, "old", 20)
    apples.cut("c2")
    values += written(apples, "new", 20)
    admin = AdminClient({"bootstrap.servers": apples.address})

    def deleted(offset: int) -> int:
        asked = TopicPartition(apples.topic, 0, offset)
        low: int = admin.delete_records([asked])[asked].result(ANSWER_S).low_watermark
        return low

    assert deleted(5) == 5
    wait_until(lambda: apples.offsets(EARLIEST) == [5, 0], "the log begins in the old part")
    assert deleted(30) == 30
    wait_until(lambda: apples.offsets(EARLIEST) == [30, 0], "the log begins in the present part")
    consumer = Consumer({"bootstrap.servers": apples.address, "group.id": "resets", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(apples.topic, 0, 3)])  # an offset whose record is gone
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + ANSWER_S
    try:
        while len(found) < 10:
            assert time.monotonic() < deadline, found
            found += [
                (message.offset() or 0, (message.value() or b"").decode())
                for message in consumer.consume(100, 0.05)
                if message.error() is None
            ]
    finally:
        consumer.close()
    assert found == numbered(values)[30:]


def test_a_transactional_producer_aborts_once_at_most_when_its_topic_comes_back(
    apples: Stitched, open_producer: Open
) -> None:
    """The cluster remembers the producer's sequences of its first stay.

    A producer of the second protocol begins each transaction at 0, and notices nothing.
    """
    producer = open_producer(apples.address, f"{apples.topic}-id")
    producer.init()
    expected: list[str] = []
    for stay, cluster in enumerate(("c1", "c2", "c1", "c2", "c1")):
        if stay:
            apples.cut(cluster)
        aborts = 0
        for number in range(5):
            values = [f"{stay} {number} {each}" for each in range(4)]
            try:
                producer.begin()
                producer.send(apples.topic, *values)
                producer.commit()
            except TransactionError as moved:
                assert not moved.fatal
                producer.abort()
                aborts += 1
            else:
                expected += values
        assert aborts <= (stay > 1 and isinstance(producer, LibrdkafkaTransacting))
    producer.close()
    assert read_committed(apples.address, apples.topic) == sorted(expected)


def test_a_java_consumer_finds_no_truncation_when_leaders_change_on_either_cluster(
    apples: Stitched, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    """It keeps the epochs of batches, and asks for their ends when it hears of a new one. Each cluster has its own."""
    values = put(apples, "old")
    with ThreadPoolExecutor(1) as background:
        reading = background.submit(reads_once, apples, "meanwhile", 4 * EACH)
        has_new_leaders(kafka_c1, apples.topic)
        values += put(apples, "new epoch")
        apples.cut("c2")
        values += put(apples, "new cluster")
        has_new_leaders(kafka_c2, apples.topic)
        values += put(apples, "new epoch there")
        assert reading.result(ANSWER_S + PATIENCE_S) == sorted(values)
    assert reads_once(apples, "afterwards", 4 * EACH) == sorted(values)


EACH = 40


def put(into: Stitched, name: str) -> list[str]:
    """Writes values of one name to both partitions."""
    values = [f"{name} {number}" for number in range(EACH)]
    produce(into.address, into.topic, values)
    return values


def reads_once(of: Stitched, group: str, count: int) -> list[str]:
    """The values that a Java consumer gets: one that found a truncation would get some again."""
    told = run_member("consumer", of.address, f"{of.topic}-{group}", [of.topic], count, metadata_max_age_ms="300")
    assert told.faults == []
    return sorted(told.values)


def has_new_leaders(cluster: KafkaCluster, topic: str) -> None:
    """With each start of its only broker a cluster has new epochs of leaders."""
    cluster.stop()
    cluster.start()
    await_leaders(AdminClient({"bootstrap.servers": cluster.bootstrap}), topic, PARTITIONS)
