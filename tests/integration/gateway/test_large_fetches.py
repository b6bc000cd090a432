"""Consumers that begin at once with polls of 50 MB get every byte, and the gateway does not hold what they ask for."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from services.gateway.downstream import last_table
from tests.fixtures.clusters import KafkaCluster
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.running import Rules
from tests.integration.gateway.workers import RunningWorkers

TOPIC = "orchards"
PARTITIONS = 3
RECORDS = 30
"""Of each partition."""
VALUE_BYTES = 900_000
CONSUMERS = 8
POLL_BYTES = 50_000_000
READ_S = 60.0


def value_of(partition: int, number: int) -> bytes:
    return b"%d of %d " % (number, partition) * (VALUE_BYTES // 8)


@pytest.fixture
def gateway(
    kafka_c1: KafkaCluster, create_topic: CreateTopic, rules: Rules, tmp_path: Path
) -> Iterator[RunningWorkers]:
    create_topic(kafka_c1, TOPIC, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
    for partition in range(PARTITIONS):
        for number in range(RECORDS):
            producer.produce(TOPIC, value_of(partition, number), partition=partition)
    assert producer.flush(READ_S) == 0
    last_table.save(tmp_path / "state", rules.to("c1", [TOPIC]))
    with closing(RunningWorkers(tmp_path)) as running:
        running.wait_until_ready()
        yield running


def read(bootstrap: str, partitions: int) -> None:
    """All that is there of so many partitions."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "harvest",
        "enable.auto.commit": False,
        "fetch.max.bytes": POLL_BYTES,
        "fetch.message.max.bytes": POLL_BYTES,
        "receive.message.max.bytes": 2 * POLL_BYTES,
    }
    found = dict.fromkeys(range(partitions), 0)
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in found])
        while min(found.values()) < RECORDS:
            record = consumer.poll(READ_S)
            assert record is not None, "nothing came"
            assert record.error() is None, record.error()
            partition = record.partition()
            assert partition is not None
            assert record.value() == value_of(partition, found[partition])
            found[partition] += 1


def most_memory(pid: int) -> int:
    """Resident at its peak, in bytes."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert told is not None
    return int(told[1]) * 1024


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_polls_of_50_mb_do_not_lie_in_memory(gateway: RunningWorkers, partitions: int) -> None:
    pids = gateway.pids().values()
    before = sum(map(most_memory, pids))
    with ThreadPoolExecutor(CONSUMERS) as consumers:
        list(consumers.map(lambda _: read(gateway.address, partitions), range(CONSUMERS)))
    grown = sum(map(most_memory, pids)) - before
    print(f"{CONSUMERS} consumers: {grown >> 20} MiB more")
    each = partitions * RECORDS * VALUE_BYTES
    assert grown < CONSUMERS * each / 3
    assert sum(gateway.metric("kafka_mesh_gateway_gathered_bytes").values()) == 0
