"""Consumers with nothing to read wait at the gateway: what happens on real brokers then reaches them as ever."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, Producer

from services.gateway import metrics
from services.gateway.downstream import fetch_forwarding, waiting_room
from services.gateway.downstream.waiting_room import WaitingRoom
from services.gateway.wire.messages import FetchRequest, FetchResponse, MetadataRequest, MetadataResponse
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic, PartitionData
from services.gateway.wire.messages.metadata import MetadataRequestTopic
from tests.clients.contract import Reading
from tests.clients.registry import CLIENTS
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.three_brokers import ThreeBrokers
from tests.fixtures.waiting import until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.talking import talking_to
from tests.integration.gateway.transacting import LibrdkafkaTransacting
from tests.unit.gateway.downstream.raw_client import RawClient

VERSION = 12
SHORT_MS, LONG_MS = 200, 60_000
AT_BROKERS_MS = 9_000
"""Long, and still short enough to wait for its end at brokers that have no news."""
SOON_S = 45.0
"""Less than a long poll: who has not heard by then has heard nothing."""
OFTEN = 1_000.0
MANY = 24
"""Partitions, enough for a session with the broker."""
away = asyncio.to_thread

pytestmark = pytest.mark.timeout(300)


class Poller:
    """A consumer that stands at the ends of all partitions of a topic, without a session or with one."""

    def __init__(self, client: RawClient, room: WaitingRoom, topic: str, ends: dict[int, int], isolation: int) -> None:
        self._client, self._room, self._topic, self._isolation = client, room, topic, isolation
        self.ends = ends
        self.session_id, self._epoch = 0, -1

    def send(self, max_wait_ms: int, partitions: dict[int, int] | None = None) -> None:
        parts = [
            FetchPartition(number, -1, end, partition_max_bytes=1_000_000)
            for number, end in (self.ends if partitions is None else partitions).items()
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=10_000_000,
            isolation_level=self._isolation,
            session_id=self.session_id,
            session_epoch=self._epoch,
            topics=[FetchTopic(self._topic, bytes(16), parts)] if parts else [],
        )
        self._client.send(request, VERSION)

    async def answer(self) -> dict[int, PartitionData]:
        found = await self._client.answer(FetchResponse)
        assert found.error_code == 0
        if self._epoch >= 0:
            self.session_id, self._epoch = found.session_id, self._epoch + 1
        return {part.partition_index: part for topic in found.responses for part in topic.partitions}

    async def poll(self, max_wait_ms: int = SHORT_MS) -> dict[int, PartitionData]:
        self.send(max_wait_ms, {} if self.session_id else None)
        return await self.answer()

    async def ask_for_leaders(self) -> None:
        await self._client.ask(MetadataRequest([MetadataRequestTopic(name=self._topic)]), 9, MetadataResponse)

    async def begin_a_session(self) -> None:
        self._epoch = 0
        self.send(SHORT_MS)
        await self.answer()
        assert self.session_id

    async def waits(self, long_ms: int = LONG_MS) -> None:
        """A long poll waits at the gateway."""
        before = metrics.waited_out.total

        async def is_quiet() -> bool:
            assert not any(part.records for part in (await self.poll()).values())
            return metrics.waited_out.total > before

        await until(is_quiet, "a poll that waits at the gateway")
        self.send(long_ms, {} if self.session_id else None)
        await until(lambda: self._room.waiting == 1, "a long poll that waits at the gateway")

    async def soon(self, within_s: float = SOON_S) -> dict[int, PartitionData]:
        """The answer to the poll that waits, which must come long before its wait is over."""
        async with asyncio.timeout(within_s):
            return await self.answer()


@asynccontextmanager
async def poller(
    gateway: RunningGateway, topic: str, ends: dict[int, int], isolation: int = 0
) -> AsyncIterator[Poller]:
    async with talking_to(gateway.address) as client:
        yield Poller(client, gateway.gateway.mesh.room, topic, ends, isolation)


@pytest.fixture
def soon_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers are quiet soon, and for long."""
    monkeypatch.setattr(fetch_forwarding, "QUIET_AFTER_S", 0.2)
    for module in (fetch_forwarding, waiting_room):
        monkeypatch.setattr(module, "RENEWED_AFTER_S", OFTEN)


@pytest.fixture
def gateway(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> RunningGateway:
    create_topic(kafka_c1, apples, 1)
    return start_gateway(rules.to("c1", [apples]))


def write(bootstrap: str, topic: str, partition: int, value: str = "news") -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    faults: list[Any] = []
    producer.produce(topic, value, partition=partition, on_delivery=lambda error, _: faults.append(error))
    assert producer.flush(30) == 0
    assert faults == [None]


@pytest.mark.usefixtures("soon_quiet")
@pytest.mark.parametrize("name", ["java-4.4", "confluent", "aiokafka", "franz-go"])
async def test_clients_read_what_comes_after_a_silence(
    name: str, gateway: RunningGateway, kafka_c1: KafkaCluster, apples: str, group: str
) -> None:
    room, client = gateway.gateway.mesh.room, CLIENTS[name](gateway.address)
    reading = asyncio.create_task(client.consume(Reading((apples,), group, 3)))
    for value in ("first", "second", "third"):
        await until(lambda: room.waiting == 1 or reading.done(), "a poll that waits at the gateway")
        await away(write, kafka_c1.bootstrap, apples, 0, value)
        await until(lambda: room.waiting == 0, "the record's poll")
    assert [each.value for each in await reading] == ["first", "second", "third"]


@pytest.mark.usefixtures("soon_quiet")
async def test_records_come_at_once(gateway: RunningGateway, kafka_c1: KafkaCluster, apples: str) -> None:
    async with poller(gateway, apples, {0: 0}) as consumer:
        for number in range(3):
            await consumer.waits()
            await away(write, kafka_c1.bootstrap, apples, 0)
            assert (await consumer.soon())[0].records
            consumer.ends[0] = number + 1


@pytest.mark.usefixtures("soon_quiet")
async def test_a_session_of_many_partitions_hears_of_each(
    rules: Rules, start_gateway: StartGateway, create_topic: CreateTopic, kafka_c1: KafkaCluster, apples: str
) -> None:
    create_topic(kafka_c1, apples, MANY)
    gateway = start_gateway(rules.to("c1", [apples]))
    async with poller(gateway, apples, dict.fromkeys(range(MANY), 0)) as consumer:
        await consumer.begin_a_session()
        for partition in (17, 3, 17):
            await consumer.waits()
            await away(write, kafka_c1.bootstrap, apples, partition)
            assert [number for number, part in (await consumer.soon()).items() if part.records] == [partition]
            consumer.ends[partition] += 1
            consumer.send(SHORT_MS, {partition: consumer.ends[partition]})
            assert not any(part.records for part in (await consumer.answer()).values())


@pytest.mark.usefixtures("soon_quiet")
async def test_an_open_transaction_keeps_its_records_until_it_ends(
    gateway: RunningGateway, kafka_c1: KafkaCluster, apples: str
) -> None:
    room, producer = gateway.gateway.mesh.room, LibrdkafkaTransacting(kafka_c1.bootstrap, f"id-of-{apples}")
    await away(producer.init)
    async with poller(gateway, apples, {0: 0}, isolation=1) as consumer:
        await consumer.waits()
        producer.begin()
        producer.send(apples, "in a transaction")
        assert await away(producer.flush) == []
        await until(lambda: room.waiting == 0, "the poll at the broker")
        await away(producer.commit)
        assert (await consumer.soon())[0].records
    await away(producer.close)


@pytest.mark.usefixtures("soon_quiet")
async def test_deleted_records_are_told_and_later_ones_come(
    gateway: RunningGateway, kafka_c1: KafkaCluster, apples: str
) -> None:
    await away(produce, kafka_c1.bootstrap, apples, ["1", "2", "3"])
    async with poller(gateway, apples, {0: 3}) as consumer:
        await consumer.waits(3_000)
        admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
        deletion = admin.delete_records([TopicPartition(apples, 0, 3)])
        await away(next(iter(deletion.values())).result, 20)
        told = (await consumer.answer())[0]
        assert (told.error_code, told.high_watermark, told.log_start_offset) == (0, 3, 3)
        await consumer.waits()
        await away(write, kafka_c1.bootstrap, apples, 0)
        assert (await consumer.soon())[0].records


@pytest.mark.usefixtures("soon_quiet")
async def test_a_deleted_topic_is_told_at_once(gateway: RunningGateway, kafka_c1: KafkaCluster, apples: str) -> None:
    async with poller(gateway, apples, {0: 0}) as consumer:
        await consumer.waits()
        admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
        await away(admin.delete_topics([apples])[apples].result, 20)
        assert (await consumer.soon())[0].error_code
        admin.create_topics([NewTopic(apples, 1, 1)])[apples].result(20)  # for the fixture, which deletes it


@pytest.mark.usefixtures("soon_quiet")
async def test_a_topic_that_moves_is_read_where_it_lives(
    gateway: RunningGateway,
    rules: Rules,
    create_topic: CreateTopic,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    apples: str,
) -> None:
    create_topic(kafka_c2, apples, 1)
    for cluster in (kafka_c1, kafka_c2):
        await away(produce, cluster.bootstrap, apples, ["1", "2"])
    async with poller(gateway, apples, {0: 2}) as consumer:
        await consumer.waits(3_000)
        await away(gateway.move, rules.to("c2", [apples]))
        await away(write, gateway.address, apples, 0)
        assert not (await consumer.answer())[0].records, "it began under the table before"
        assert (await consumer.poll(LONG_MS))[0].records


class Wide:
    """A topic of three partitions on three brokers, by number of their leaders."""

    def __init__(self, brokers: ThreeBrokers, topic: str) -> None:
        self.brokers, self.topic = brokers, topic
        self.admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        self.admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)
        await_leaders(self.admin, topic, 3)

    def led_by(self, broker: int) -> int:
        partitions = self.admin.list_topics(self.topic, timeout=20).topics[self.topic].partitions
        return next(number for number, found in partitions.items() if found.leader == broker)


@pytest.fixture
def wide(three_brokers: ThreeBrokers, unique_name: Callable[[str], str]) -> Wide:
    return Wide(three_brokers, unique_name("wide"))


@pytest.fixture
def wide_gateway(wide: Wide, start_gateway: StartGateway) -> RunningGateway:
    return start_gateway(Rules({"wide": wide.brokers.bootstrap}).to("wide", [wide.topic]))


@pytest.mark.usefixtures("soon_quiet")
async def test_a_poll_of_three_brokers_hears_of_each(wide: Wide, wide_gateway: RunningGateway) -> None:
    async with poller(wide_gateway, wide.topic, dict.fromkeys(range(3), 0)) as consumer:
        for partition in range(3):
            await consumer.waits(AT_BROKERS_MS)
            await away(write, wide.brokers.bootstrap, wide.topic, partition)
            news = await consumer.soon(AT_BROKERS_MS / 1000 - 1)
            assert [number for number, part in news.items() if part.records] == [partition]
            consumer.ends[partition] += 1


@pytest.mark.usefixtures("soon_quiet")
async def test_nobody_waits_for_a_broker_that_hangs(wide: Wide, wide_gateway: RunningGateway) -> None:
    room, partition = wide_gateway.gateway.mesh.room, wide.led_by(2)
    async with poller(wide_gateway, wide.topic, {partition: 0}) as consumer:
        await consumer.waits()
        with wide.brokers.node(2).frozen():
            await until(lambda: room.waiting == 0, "the poll at the broker", SOON_S)
        await away(write, wide.brokers.bootstrap, wide.topic, partition)
        if not (await consumer.answer())[partition].records:
            await until(lambda: _reads(consumer, partition), "the record")


@pytest.mark.usefixtures("soon_quiet")
async def test_who_waits_goes_on_with_the_next_leader(wide: Wide, wide_gateway: RunningGateway) -> None:
    partition, lost = wide.led_by(3), metrics.ended_waits.labels("lost")
    async with poller(wide_gateway, wide.topic, {partition: 0}) as consumer:
        await consumer.waits(AT_BROKERS_MS)
        before = lost.total
        wide.brokers.node(3).kill()
        try:
            await until(lambda: lost.total > before, "the poll that is sent, for the watch is lost")
            await away(write, wide.brokers.bootstrap, wide.topic, partition)
            if not (await consumer.answer())[partition].records:
                await until(lambda: _reads(consumer, partition), "the record, from the next leader")
        finally:
            wide.brokers.node(3).launch()
            await away(wide.brokers.node(3).wait_until_it_answers)
        consumer.ends[partition] = 1
        await consumer.waits()
        await away(write, wide.brokers.bootstrap, wide.topic, partition)
        assert (await consumer.soon())[partition].records


async def _reads(consumer: Poller, partition: int) -> bool:
    """Consumers ask for leaders anew after an error."""
    found = (await consumer.poll())[partition]
    if found.error_code:
        await consumer.ask_for_leaders()
    return bool(found.records)
