"""Idempotent producers on ids that gateways mint, batch by batch: whichever gateway they come through, a broker finds
what is doubled or missing, and takes what is new (spec: protocol-ideas 1)."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from services.gateway.wire.messages.describe_producers import ProducerState, TopicRequest
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.talking import comes_true, talking_to
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.wire.records import batch

FORGETFUL = "producer.id.expiration.ms=1500\nproducer.id.expiration.check.interval.ms=200\n"
"""A broker that forgets producers while a test looks on."""
PRODUCE_VERSION = 9
MINUTE_MS = 60_000


class Stored(NamedTuple):
    """A broker's answer: error code and offset."""

    error: int
    offset: int


REFUSED = Stored(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


class Producer:
    """Writes single records to partition 0, each as a batch of its own."""

    def __init__(self, topic: str, producer_id: int) -> None:
        self.topic = topic
        self.id = producer_id

    async def writes(self, through: RawClient, sequence: int, *, epoch: int = 0, ahead_ms: int = 0) -> Stored:
        value = b"v"
        record = bytes((0, 0, 0, 1, 2 * len(value), *value, 0))  # no key, no headers; lengths are zigzag varints
        now = int(time.time() * 1000) + ahead_ms  # brokers forget producers by the times of their records
        framed = bytes((2 * len(record),)) + record
        records = batch(framed, producer_id=self.id, epoch=epoch, sequence=sequence, timestamp=now)
        topics = [TopicProduceData(self.topic, partition_data=[PartitionProduceData(0, records)])]
        answer = await through.ask(ProduceRequest(None, -1, 10_000, topics), PRODUCE_VERSION, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        return Stored(result.error_code, result.base_offset)

    async def remembered(self, through: RawClient) -> list[ProducerState]:
        """What the partition's leader knows of producers."""
        question = DescribeProducersRequest([TopicRequest(self.topic, [0])])
        answer = await through.ask(question, 0, DescribeProducersResponse)
        return answer.topics[0].partitions[0].active_producers


async def minted(gateway: RawClient) -> int:
    answer = await gateway.ask(InitProducerIdRequest(None, 60_000), 4, InitProducerIdResponse)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


@pytest.fixture
def apples() -> str:
    return f"idempotence-{uuid.uuid4().hex[:8]}"


async def test_a_producer_goes_on_through_another_gateway_and_after_a_restart(
    apples: str, rules: Rules, kafka_c1: KafkaCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    create_topic(kafka_c1, apples)
    table = rules.to("c1", [apples])
    first = RunningGateway(tmp_path / "first", table)
    try:
        async with talking_to(first.address) as gateway:
            producer = Producer(apples, await minted(gateway))
            assert [await producer.writes(gateway, n) for n in (0, 1)] == [(0, 0), (0, 1)]
    finally:
        first.close()
    second = RunningGateway(tmp_path / "second", table)
    try:
        async with talking_to(second.address) as gateway:
            assert await producer.writes(gateway, 1) == (0, 1), "a repeat: nothing is stored, the offset is the first's"
            assert await producer.writes(gateway, 2) == (0, 2)
            assert await producer.writes(gateway, 4) == REFUSED, "one is missing"
            assert await minted(gateway) != producer.id
    finally:
        second.close()


async def test_epochs_begin_anew_and_old_ones_are_over(
    apples: str, rules: Rules, kafka_c1: KafkaCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    create_topic(kafka_c1, apples)
    running = RunningGateway(tmp_path / "gateway", rules.to("c1", [apples]))
    try:
        async with talking_to(running.address) as gateway:
            producer = Producer(apples, await minted(gateway))
            assert await producer.writes(gateway, 0) == (0, 0)
            assert await producer.writes(gateway, 1, epoch=1) == REFUSED, (
                "the client raises its epoch, not its sequence"
            )
            assert await producer.writes(gateway, 0, epoch=1) == (0, 1)
            assert (await producer.writes(gateway, 1)).error == ErrorCode.INVALID_PRODUCER_EPOCH
            begins_late = Producer(apples, await minted(gateway))
            assert await begins_late.writes(gateway, 5) == (0, 2), "unknown to the partition: any sequence is the first"
            assert await begins_late.writes(gateway, 0) == REFUSED
    finally:
        running.close()


@pytest.fixture
def forgetful(kafka_jars: None, tmp_path: Path) -> Iterator[KafkaCluster]:
    further = tmp_path / "further.properties"
    further.write_text(FORGETFUL)
    cluster = KafkaCluster("forgetful", tmp_path / "forgetful", further)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


async def test_a_producer_that_a_broker_has_forgotten_goes_on(
    apples: str, forgetful: KafkaCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    create_topic(forgetful, apples)
    running = RunningGateway(tmp_path / "gateway", Rules({"c1": forgetful.bootstrap}).to("c1", [apples]))
    try:
        async with talking_to(running.address) as gateway:
            producer = Producer(apples, await minted(gateway))
            assert [await producer.writes(gateway, n) for n in (0, 1)] == [(0, 0), (0, 1)]
            await comes_true(lambda: producer.remembered(gateway), [], "the broker has forgotten the producer")
            again = [await producer.writes(gateway, 2, ahead_ms=MINUTE_MS) for _ in range(2)]
            assert again == [(0, 2), (0, 2)], "and knows it again, for a minute and more"
    finally:
        running.close()
