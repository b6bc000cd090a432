"""A cluster has a standby, is killed with `kill -9`, and clients go on at the copies without a restart."""

from __future__ import annotations

import asyncio
import json
import operator
import subprocess
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
from tests.fixtures.forked_meshctl import forked_meshctl
from tests.fixtures.two_of_everything import CALL_S, NOT_NOW, TwoOfEverything
from tests.fixtures.waiting import until
from tests.fixtures.writers import Writer
from tests.integration.control.world import create_topic

WITHIN_S = 60.0
GO_ON_WITHIN_S = 10.0
"""From the order of the fail-over until producers have an answer again."""
NAME = "standbys/c2"
RECORDS = 200
UNANSWERED = 25
"""Records below an answered one that were stored and had no answer when the cluster died, at most: they count as lost,
and their producers send them again."""

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


def ends_seen(standby: Standby) -> int:
    return sum(each.end for topic in standby.topics for each in topic.partitions)


def write(bootstrap: str, topic: str, values: list[str]) -> None:
    """In batches of few records: a copy takes over whole batches."""
    some = {"linger.ms": 0, "batch.num.messages": 5}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **some})
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


async def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Until it is accepted: a cluster whose first group this is makes its topic of offsets first."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number, offset) for number in range(2)])

    def accepted() -> bool:
        [future] = admin.alter_consumer_group_offsets([wanted]).values()
        errors = [str(each.error) for each in future.result(CALL_S).topic_partitions if each.error]
        print(f"{group} commits {offset}: {errors or 'accepted'}")
        return not errors

    async def is_accepted() -> bool:
        return await asyncio.to_thread(accepted)

    await until(is_accepted, "the position is committed", WITHIN_S)


def ends_of(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}.ends"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, number), CALL_S)[1] for number in range(2)]
    consumer.close()
    return found


async def has_committed(
    bootstrap: str, group: str, topic: str, offsets: list[int], is_enough: Callable[[int, int], bool] = operator.eq
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number) for number in range(2)])
    found: list[int] = []

    def look() -> bool:
        [future] = admin.list_consumer_group_offsets([wanted]).values()
        found[:] = [each.offset for each in future.result(CALL_S).topic_partitions]
        return all(map(is_enough, found, offsets))

    async def is_so() -> bool:
        return await asyncio.to_thread(look)

    await until(is_so, f"{group} has {offsets} at {bootstrap}", WITHIN_S)


def meshctl(mesh: TwoOfEverything, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Asks the control that leads."""
    [address] = [each.address for each in mesh.controls if each.ready() == "ready"]
    return forked_meshctl().call(["--address", address, "cluster", *arguments], {}, mesh.folder)


async def command(mesh: TwoOfEverything, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(meshctl, mesh, *arguments)


async def answer(mesh: TwoOfEverything, *arguments: str) -> dict[str, Any]:
    """Runs a command that ends well; gives its output as a program reads it."""
    run = await command(mesh, *arguments, "-o", "json")
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@asynccontextmanager
async def writing(topic: str, *addresses: str) -> AsyncIterator[list[Writer]]:
    writers = [Writer(f"w{number}", address, topic) for number, address in enumerate(addresses)]
    try:
        yield writers
    finally:
        for writer in writers:
            await writer.end()


@pytest.mark.timeout(400)
async def test_clients_go_on_at_the_copies_without_a_restart(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("kept")
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        first, second = (each.address for each in mesh.gateways)
        reader_group = f"{topic}.group"
        reader = Reader(second, reader_group, [topic])
        with reader.running():
            async with writing(topic, first, second) as writers:
                for writer in writers:
                    await writer.goes_on(RECORDS)
                await stand_by(mesh, topic)
                await shown_when(mesh, lambda found: any(each.HasField("lag") for each in found.topics))
                await has_committed(kafka_c1.bootstrap, reader_group, topic, [1, 1], operator.ge)
                doomed.kill()
                died = time.monotonic()
                standby = await fail_over(mesh)
                for writer in writers:
                    await writer.goes_on()
                went_on_s = time.monotonic() - died
                for writer in writers:
                    await writer.goes_on(RECORDS)
            stored = {value for writer in writers for value in writer.stored}
            there = await asyncio.to_thread(read_all, first, topic)
            lost = stored - {*there}

            def has_read_on() -> bool:  # a live reader that had read lost records passes over as many offsets
                return len({*there} - {value for *_, value in reader.read}) <= len(lost)

            await until(has_read_on, "the group reads on", WITHIN_S)
            ends = await asyncio.to_thread(ends_of, first, topic)
            await has_committed(kafka_c1.bootstrap, reader_group, topic, ends)
            committed_s = time.monotonic() - died
        told = sum(each.lag_records for each in standby.topics)
        print(
            f"went on in {went_on_s:.1f} s, {len(lost)} lost, {told} told, {len(there) - len({*there})} twice, "
            f"the group has committed the ends after {committed_s:.1f} s"
        )
        assert went_on_s < GO_ON_WITHIN_S
        assert [writer.faults for writer in writers] == [[], []]
        assert 0 <= told - len(lost) <= UNANSWERED
        await asyncio.to_thread(write, first, topic, ["again"])
        successor = Reader(first, reader_group, [topic])
        with successor.running():
            await until(lambda: successor.read, "the next member of the group reads", WITHIN_S)
        assert [value for *_, value in successor.read] == ["again"]


@pytest.mark.timeout(400)
async def test_nothing_is_lost_where_the_copy_was_level_and_meshctl_orders_and_tells_it(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("level")
    group = f"{topic}.group"
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        gateway = mesh.gateways[0].address
        await asyncio.to_thread(write, gateway, topic, [f"v{number}" for number in range(RECORDS)])
        await commit(gateway, group, topic, 40)
        await has_committed(doomed.bootstrap, group, topic, [40, 40])
        begun = await answer(mesh, "standby", "c2", "--on", "c1", "--topics", f"{topic}*")
        assert begun["name"] == NAME
        await shown_when(mesh, lambda found: has(found, RECORDS))
        await has_committed(kafka_c1.bootstrap, group, topic, [40, 40])
        shown = await command(mesh, "standby", "show", "c2")
        assert shown.returncode == 0, shown.stderr
        assert topic in shown.stdout
        assert "No copy lacks a record" in shown.stdout
        refused = await command(mesh, "fail-over", "c2", "--to", "c1")
        assert refused.returncode != 0
        assert "'c2' answers control" in refused.stderr
        assert (await answer(mesh, "standby", "show", "c2"))["state"] == "STANDBY_STATE_FOLLOWING"
        doomed.kill()
        plan = await command(mesh, "fail-over", "c2", "--to", "c1", "--dry-run")
        assert plan.returncode == 0, plan.stderr
        assert "nothing was changed" in plan.stdout
        assert (await answer(mesh, "standby", "show", "c2"))["state"] == "STANDBY_STATE_FOLLOWING"
        done = await answer(mesh, "fail-over", "c2", "--to", "c1", "--reason", "it is dead")
        assert done["state"] == "STANDBY_STATE_FAILED_OVER"
        [failed_over] = (await shown_when(mesh, bool)).topics
        assert (failed_over.lag_records, len(failed_over.partitions)) == (0, 2)
        await asyncio.to_thread(write, gateway, topic, ["after"])
        there = await asyncio.to_thread(read_all, gateway, topic)
        assert sorted(there) == sorted([*(f"v{number}" for number in range(RECORDS)), "after"])
        reader = Reader(gateway, group, [topic])
        with reader.running():
            await until(lambda: len(reader.read) >= RECORDS - 80 + 1, "the group reads on", WITHIN_S)
        assert min(offset for _, _, offset, _ in reader.read) == 40
        assert len(reader.read) == RECORDS - 80 + 1


@pytest.mark.timeout(400)
async def test_the_loss_of_a_copy_that_is_behind_is_told_exactly_and_groups_go_on_at_its_end(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("behind")
    group = f"{topic}.group"
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        gateway = mesh.gateways[0].address
        values = [f"v{number}".ljust(100, ".") for number in range(RECORDS)]
        await asyncio.to_thread(write, gateway, topic, values)
        await commit(gateway, group, topic, RECORDS // 2)
        await stand_by(mesh, topic, bytes_per_second=1000)
        shown = await shown_when(mesh, lambda found: ends_seen(found) == RECORDS)
        assert sum(each.lag_records for each in shown.topics) > 0
        await has_committed(kafka_c1.bootstrap, group, topic, [RECORDS // 2, RECORDS // 2])
        doomed.kill()
        [failed_over] = (await fail_over(mesh)).topics
        there = await asyncio.to_thread(read_all, gateway, topic)
        assert {*there} < {*values}
        assert len({*there}) == len(there)
        print(f"{RECORDS - len(there)} lost, {failed_over.lag_records} told")
        assert failed_over.lag_records == RECORDS - len(there)
        for each in failed_over.partitions:
            missing = [value for value in values[each.partition :: 2] if value not in there]
            assert each.end - each.position == len(missing)
        ends_of_copies = [each.position for each in failed_over.partitions]
        await has_committed(kafka_c1.bootstrap, group, topic, ends_of_copies)
        await asyncio.to_thread(write, gateway, topic, ["a", "b"])
        reader = Reader(gateway, group, [topic])
        with reader.running():
            await until(lambda: len(reader.read) >= 2, "the group reads on", WITHIN_S)
        assert sorted(value for *_, value in reader.read) == ["a", "b"]
