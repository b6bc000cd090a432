"""A cluster has a standby, is killed with `kill -9`, and clients go on at the copies without a restart."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mesh.rpc import standbys, standbys_grpc
from tests.e2e.test_drains import Reader
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.two_of_everything import CALL_S, NOT_NOW, TwoOfEverything
from tests.fixtures.waiting import until
from tests.fixtures.writers import Writer
from tests.integration.control.world import create_topic

WITHIN_S = 120.0
GO_ON_WITHIN_S = 10.0
"""From the order of the fail-over until producers have an answer again."""
NAME = "standbys/c2"
RECORDS = 200

Standby = standbys.Standby


@pytest.fixture
def doomed(kafka_jars: None, tmp_path: Path) -> Iterator[KafkaCluster]:
    """The cluster c2, which the test kills."""
    cluster = KafkaCluster("doomed", tmp_path / "doomed")
    cluster.start()
    yield cluster
    cluster.stop()


@asynccontextmanager
async def mesh_of(
    postgres: PostgresServer, home: KafkaCluster, doomed: KafkaCluster, topic: str, folder: Path
) -> AsyncIterator[TwoOfEverything]:
    create_topic(doomed.bootstrap, topic, 2)
    async with TwoOfEverything(postgres.migrated(), home, doomed, f"{topic}.events", folder) as mesh:
        await mesh.moves(topic, "c2")
        await mesh.start_gateways()
        yield mesh


async def asked(mesh: TwoOfEverything, method: str, request: Any, is_so: Callable[[Standby], bool] = bool) -> Standby:
    """The answer of the control that leads, when it is so."""
    found: list[Standby] = []

    async def answers() -> bool:
        for channel in mesh.channels:
            try:
                answer = await getattr(standbys_grpc.StandbyServiceStub(channel), method)(request, timeout=CALL_S)
            except grpc.aio.AioRpcError as error:
                assert error.code() in (*NOT_NOW, grpc.StatusCode.NOT_FOUND), f"{error.code()}: {error.details()}"
            else:
                if is_so(answer):
                    found.append(answer)
                    return True
        return False

    await until(answers, f"{method} is answered", WITHIN_S)
    return found[0]


async def stand_by(mesh: TwoOfEverything, topic: str, bytes_per_second: int = 0) -> None:
    spec = standbys.StandbySpec(
        source_cluster="c2", target_cluster="c1", topics=f"{topic}*", bytes_per_second=bytes_per_second
    )
    await asked(mesh, "StartStandby", standbys.StartStandbyRequest(spec=spec, request_id=str(uuid.uuid4())))


async def shown_when(mesh: TwoOfEverything, is_so: Callable[[Standby], bool]) -> Standby:
    return await asked(mesh, "GetStandby", standbys.GetStandbyRequest(name=NAME), is_so)


async def fail_over(mesh: TwoOfEverything) -> Standby:
    request = standbys.FailOverRequest(name=NAME, target_cluster="c1", request_id=str(uuid.uuid4()))
    return await asked(mesh, "FailOver", request, lambda found: found.state == standbys.STANDBY_STATE_FAILED_OVER)


def has(standby: Standby, records: int) -> bool:
    """The copies are level with the source, and have so many records."""
    partitions = [each for topic in standby.topics for each in topic.partitions]
    return not any(topic.lag_records or topic.problem for topic in standby.topics) and (
        sum(each.position for each in partitions) == records
    )


def write(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(CALL_S) == 0


def read_all(bootstrap: str, topic: str) -> list[str]:
    """The records up to the ends of the log now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}.check", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found: list[str] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + WITHIN_S
    while len(ended) < 2:
        assert time.monotonic() < deadline, f"the ends of {topic} were not reached: {ended}"
        for each in consumer.consume(500, 0.5):
            if (error := each.error()) is None:
                found.append((each.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(each.partition())
    consumer.close()
    return found


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number, offset) for number in range(2)])
    [future] = admin.alter_consumer_group_offsets([wanted]).values()
    future.result(CALL_S)


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(2)])
    [future] = admin.list_consumer_group_offsets([wanted]).values()
    return [each.offset for each in future.result(CALL_S).topic_partitions]


@pytest.mark.timeout(400)
async def test_clients_go_on_at_the_copies_and_nothing_is_lost_that_a_copy_had(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("kept")
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        first, second = (each.address for each in mesh.gateways)
        writers = [Writer(f"{name}", address, topic) for name, address in (("a", first), ("b", second))]
        reader = Reader(second, f"{topic}.group", [topic])
        with reader.running():
            for writer in writers:
                await writer.goes_on(RECORDS)
            await stand_by(mesh, topic)
            await shown_when(mesh, lambda found: [each.topic for each in found.topics] == [topic])
            for writer in writers:
                await writer.goes_on(RECORDS)
            await shown_when(mesh, lambda found: any(each.HasField("lag_ms") for each in found.topics))
            doomed.kill()
            died = time.monotonic()
            await fail_over(mesh)
            before = {value for writer in writers for value in writer.stored}
            for writer in writers:
                await writer.goes_on()
            went_on_s = time.monotonic() - died
            for writer in writers:
                await writer.goes_on(RECORDS)
                await writer.end()
            stored = {value for writer in writers for value in writer.stored}
            there = await asyncio.to_thread(read_all, first, topic)
            lost = before - {*there}

            def has_read_on() -> bool:  # a live reader that had read lost records passes over as many offsets
                return len({*there} - {value for *_, value in reader.read}) <= len(lost)

            await until(has_read_on, "the group reads on", WITHIN_S)
        print(f"went on in {went_on_s:.1f} s, {len(lost)} lost, {len(there) - len({*there})} twice")
        assert went_on_s < GO_ON_WITHIN_S
        assert [writer.faults for writer in writers] == [[], []]
        assert stored - before <= {*there}


@pytest.mark.timeout(400)
async def test_the_loss_is_told_by_partition_where_a_copy_was_behind_and_is_none_where_it_was_level(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("level")
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        gateway = mesh.gateways[0].address
        await asyncio.to_thread(write, gateway, topic, [f"v{number}" for number in range(RECORDS)])
        await asyncio.to_thread(commit, doomed.bootstrap, f"{topic}.group", topic, 40)
        await stand_by(mesh, topic)
        await shown_when(mesh, lambda found: has(found, RECORDS))

        async def has_positions() -> bool:
            return await asyncio.to_thread(committed, kafka_c1.bootstrap, f"{topic}.group", topic) == [40, 40]

        await until(has_positions, "the group has its positions on the standby", WITHIN_S)
        doomed.kill()
        standby = await fail_over(mesh)
        assert [(each.lag_records, len(each.partitions)) for each in standby.topics] == [(0, 2)]
        await asyncio.to_thread(write, gateway, topic, ["after"])
        there = await asyncio.to_thread(read_all, gateway, topic)
        assert sorted(there) == sorted([*(f"v{number}" for number in range(RECORDS)), "after"])
        assert committed(kafka_c1.bootstrap, f"{topic}.group", topic) == [40, 40]
