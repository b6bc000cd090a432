"""`kafka-transactions.sh` through the gateway over two clusters, as an operator uses it."""

import asyncio
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from mesh.compression import Codec
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.legacy.record import Group, Record
from services.gateway.wire.legacy.record_batches import Transactional, write_batch
from services.gateway.wire.messages import ProduceRequest, ProduceResponse
from services.gateway.wire.messages.produce import PartitionProduceData, TopicProduceData
from tests.clients.console.driver import ConsoleTools, Tool
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules
from tests.integration.gateway.talking import comes_true, talking_to
from tests.integration.gateway.transacting import (
    ANSWER_S,
    LibrdkafkaTransacting,
    TransactionError,
    await_markers,
    read_committed,
)

VERIFIED = "transaction.partition.verification.enable"
PRODUCER, EPOCH = 4_711, 3
OLD_S = 20 * 60
"""Older than the longest time-out of a transaction, which is 15 minutes."""
LONGEST_MS = "900000"
"""The longest time-out of a transaction: a dozen runs of a tool take a minute on a busy machine."""
HOME_NODE, OTHER_NODE = "101", "102"


@dataclass(frozen=True, slots=True)
class Orchard:
    """apples are on c1, which is home, bananas on c2."""

    apples: str
    bananas: str
    c1: KafkaCluster
    c2: KafkaCluster
    address: str

    def run(self, *arguments: str) -> str:
        return asyncio.run(ConsoleTools(self.address).run(Tool.TRANSACTIONS, *arguments))

    def open(self, transactional_id: str) -> LibrdkafkaTransacting:
        """A producer whose transaction is open on both clusters."""
        producer = LibrdkafkaTransacting(self.address, transactional_id, transaction_timeout_ms=LONGEST_MS)
        producer.init()
        producer.begin()
        producer.send(self.apples, "half")
        producer.send(self.bananas, "other half")
        assert producer.flush() == []
        return producer


@pytest.fixture
def orchard(
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    rules: Rules,
    create_topic: CreateTopic,
    start_gateway: StartGateway,
) -> Orchard:
    name = f"tool-{uuid.uuid4().hex[:8]}"
    apples, bananas = f"{name}-apples", f"{name}-bananas"
    for cluster_name, cluster, topic in (("c1", kafka_c1, apples), ("c2", kafka_c2, bananas)):
        create_topic(cluster, topic, 1)
        rules.to(cluster_name, [topic])
    return Orchard(apples, bananas, kafka_c1, kafka_c2, start_gateway(rules.table).address)


@pytest.fixture
def unverified(kafka_c2: KafkaCluster) -> Iterator[None]:
    """c2 takes transactional records of which its coordinator knows nothing, as brokers before Kafka 3.6 do."""
    admin = AdminClient({"bootstrap.servers": kafka_c2.bootstrap})
    (broker,) = admin.list_topics(timeout=ANSWER_S).brokers

    def put(value: str) -> None:
        entry = ConfigEntry(VERIFIED, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(ANSWER_S)

    put("false")
    yield
    put("true")


async def hang(address: str, topic: str) -> None:
    """Leaves a transaction open in the topic, which no coordinator will ever end."""
    record = Record(0, int((time.time() - OLD_S) * 1000), b"key", b"never")
    made = write_batch([Group(Codec.NONE, False, iter([record]), 1)], 1, Transactional(PRODUCER, EPOCH, 0))
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, made)])
    async with talking_to(address) as client:

        async def write() -> int:
            answer = await client.ask(ProduceRequest("hangs", -1, 10_000, [data]), 11, ProduceResponse)
            return answer.responses[0].partition_responses[0].error_code

        await comes_true(write, ErrorCode.NONE, "the broker no longer asks its coordinator")


def test_a_transaction_over_two_clusters_is_listed_described_and_terminated_as_one(orchard: Orchard) -> None:
    transactional_id = f"{orchard.apples}/id"
    producer = orchard.open(transactional_id)
    listed = orchard.run("list", "--transactional-id-pattern", f"{orchard.apples}/.*")
    rows = re.findall(rf"^{transactional_id}\s+(\d+)\s+(\d+)\s+Ongoing\s", listed, re.MULTILINE)
    assert len(set(rows) & {(HOME_NODE, rows[0][1]), (OTHER_NODE, rows[0][1])}) == len(set(rows)), listed
    assert transactional_id not in orchard.run("list", "--duration-filter", "3600000")
    described = orchard.run("describe", "--transactional-id", transactional_id)
    row = rf"^{HOME_NODE}\s+{transactional_id}\s+{rows[0][1]}\s.*\sOngoing\s.*\s(\S+)\s*$"
    (partitions,) = re.findall(row, described, re.MULTILINE)
    assert set(partitions.split(",")) == {f"{orchard.apples}-0", f"{orchard.bananas}-0"}
    for topic in (orchard.apples, orchard.bananas):
        told = orchard.run("describe-producers", "--topic", topic, "--partition", "0")
        assert re.findall(r"^\d+\s.*\s(\S+)\s*$", told, re.MULTILINE) == ["0"], "open since offset 0"
        hanging = orchard.run("find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        assert topic not in hanging, "it has a coordinator"

    orchard.run("forceTerminateTransaction", "--transactionalId", transactional_id)
    for topic in (orchard.apples, orchard.bananas):
        await_markers(orchard.address, topic)
        told = orchard.run("describe-producers", "--topic", topic, "--partition", "0")
        assert re.findall(r"^\d+\s.*\s(\S+)\s*$", told, re.MULTILINE) == ["None"], "nothing is open"
    with pytest.raises(TransactionError):
        producer.commit()
    producer.close()
    assert read_committed(orchard.c1.bootstrap, orchard.apples) == []
    assert read_committed(orchard.c2.bootstrap, orchard.bananas) == []


@pytest.mark.usefixtures("unverified")
def test_a_hanging_transaction_on_the_other_cluster_is_found_and_aborted(orchard: Orchard) -> None:
    asyncio.run(hang(orchard.c2.bootstrap, orchard.bananas))
    for where in (("--topic", orchard.bananas), ("--broker-id", OTHER_NODE)):
        found = orchard.run("find-hanging", *where)
        row = rf"^{orchard.bananas}\s+0\s+{PRODUCER}\s+{EPOCH}\s+-1\s+0\s+\d+\s+20\s"
        assert re.search(row, found, re.MULTILINE), found
    assert orchard.bananas not in orchard.run("find-hanging", "--broker-id", HOME_NODE)

    orchard.run("abort", "--topic", orchard.bananas, "--partition", "0", "--start-offset", "0")
    assert orchard.bananas not in orchard.run("find-hanging", "--topic", orchard.bananas)
    producer = orchard.open(f"{orchard.apples}/id")
    producer.commit()
    producer.close()
    assert read_committed(orchard.c2.bootstrap, orchard.bananas) == ["other half"]
