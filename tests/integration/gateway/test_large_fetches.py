"""Consumers that begin at once with polls of 50 MB get every byte, and the gateway does not hold what they ask for."""

import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from services.gateway.downstream import last_table
from services.gateway.upstream.answer_memory import SCARCE_POLL_BYTES
from services.gateway.wire.frames import encode_request
from services.gateway.wire.messages import FetchRequest
from services.gateway.wire.messages.fetch import FetchPartition, FetchTopic
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic
from tests.integration.gateway.running import Rules
from tests.integration.gateway.workers import RunningWorkers

PARTITIONS = 3
MIB = 1 << 20
CONSUMERS = 8
WORKERS = 2
STUCK = 60
ROOM_MIB = 16
POLL_BYTES = 50_000_000
READ_S = 60.0


@dataclass(frozen=True)
class Harvest:
    """What lies in each partition of a topic."""

    topic: str
    records: int
    value_bytes: int

    def value(self, partition: int, number: int) -> bytes:
        return b"%d of %d " % (number, partition) * (self.value_bytes // 8)

    @property
    def partition_bytes(self) -> int:
        return self.records * self.value_bytes


LARGE = Harvest("orchards", 30, 900_000)
SMALL = Harvest("gardens", 1000, 9_000)


@contextmanager
def gateway_before(
    kafka: KafkaCluster, create_topic: CreateTopic, rules: Rules, folder: Path, harvest: Harvest, **settings: str
) -> Iterator[RunningWorkers]:
    create_topic(kafka, harvest.topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "batch.size": 32_000, "linger.ms": 5})
    for partition in range(PARTITIONS):
        for number in range(harvest.records):
            producer.produce(harvest.topic, harvest.value(partition, number), partition=partition)
    assert producer.flush(READ_S) == 0
    last_table.save(folder / "state", rules.to("c1", [harvest.topic]))
    with closing(RunningWorkers(folder, WORKERS, **settings)) as running:
        running.wait_until_ready()
        yield running


def read(bootstrap: str, harvest: Harvest, partitions: int) -> None:
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
        consumer.assign([TopicPartition(harvest.topic, partition, 0) for partition in found])
        while min(found.values()) < harvest.records:
            record = consumer.poll(READ_S)
            assert record is not None, "nothing came"
            assert record.error() is None, record.error()
            partition = record.partition()
            assert partition is not None
            assert record.value() == harvest.value(partition, found[partition])
            found[partition] += 1


def most_memory(pid: int) -> int:
    """Resident at its peak, in bytes."""
    told = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert told is not None
    return int(told[1]) * 1024


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.soak), PARTITIONS])
def test_polls_of_50_mb_do_not_lie_in_memory(
    kafka_c1: KafkaCluster, create_topic: CreateTopic, rules: Rules, tmp_path: Path, partitions: int
) -> None:
    with gateway_before(kafka_c1, create_topic, rules, tmp_path, LARGE) as gateway:
        pids = gateway.pids().values()
        before = sum(map(most_memory, pids))
        with ThreadPoolExecutor(CONSUMERS) as consumers:
            list(consumers.map(lambda _: read(gateway.address, LARGE, partitions), range(CONSUMERS)))
        grown = sum(map(most_memory, pids)) - before
        print(f"{CONSUMERS} consumers: {grown / MIB:.0f} MiB more")
        assert grown < CONSUMERS * partitions * LARGE.partition_bytes / 3
        wait_until(lambda: not sum(gateway.metric("kafka_mesh_gateway_gathered_bytes").values()), "nothing is gathered")


def test_clients_that_take_nothing_make_others_slower_and_stop_nobody(
    kafka_c1: KafkaCluster, create_topic: CreateTopic, rules: Rules, tmp_path: Path
) -> None:
    room = {"MAX_GATHERED_MIB": str(ROOM_MIB)}
    with (
        gateway_before(kafka_c1, create_topic, rules, tmp_path, SMALL, **room) as gateway,
        ExitStack() as stuck,
    ):
        for number in range(STUCK):
            stuck.enter_context(who_takes_nothing(gateway.address, SMALL.topic, number))
        held = partial(gateway.metric, "kafka_mesh_gateway_gathered_bytes")

        def have_less_room() -> bool:
            """Half is taken; or less, because a large answer waits until all of the room is free."""
            waited = gateway.metric("kafka_mesh_gateway_answers_waited_total")
            return all(taken > ROOM_MIB * MIB / 2 or waited[worker] for worker, taken in held().items())

        wait_until(have_less_room, "both workers have less room")
        read(gateway.address, SMALL, PARTITIONS)
        answered = sum(gateway.metric("kafka_mesh_gateway_requests_total", api="Fetch", outcome="answered").values())
        assert answered > PARTITIONS * SMALL.partition_bytes / (2 * SCARCE_POLL_BYTES), "by polls that need less room"
        assert max(held().values()) < 2 * ROOM_MIB * MIB


@contextmanager
def who_takes_nothing(address: str, topic: str, number: int) -> Iterator[None]:
    """A client that polls, and does not read the answer."""
    host, _, port = address.rpartition(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        partitions = [FetchPartition(n, partition_max_bytes=POLL_BYTES) for n in range(PARTITIONS)]
        message = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=POLL_BYTES, topics=[FetchTopic(topic, partitions=partitions)]
        )
        client.sendall(encode_request(message, 12, number, "stuck"))
        yield
