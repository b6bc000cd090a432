"""The loss of a fail-over under load is what producers had an answer for and the copy lacks, partition by partition."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from mesh.rpc import standbys
from tests.e2e.test_fail_over import UNANSWERED, WITHIN_S, doomed, fail_over, mesh_of, read_all, shown_when, stand_by
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.waiting import until

__all__ = ["doomed"]

RECORDS = 200


class Load:
    """A producer that writes on and on through one gateway, and knows where each record was stored."""

    def __init__(self, name: str, bootstrap: str, topic: str, **settings: str | int | bool) -> None:
        self.stored: list[tuple[int, int, str]] = []
        """Partition, offset, value."""
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(name, bootstrap, topic, settings))
        self._thread.start()

    def _write(self, name: str, bootstrap: str, topic: str, settings: dict[str, str | int | bool]) -> None:
        some = {"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.num.messages": 5, **settings}
        producer = Producer(some)
        for number in count():
            producer.produce(topic, f"{name}-{number}", partition=number % 2, on_delivery=self._delivered)
            producer.poll(0.002)
            if self._stop.is_set():
                break
        if producer.flush(WITHIN_S):
            self.faults.append("records have no answer")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = (message.partition() or 0, message.offset() or 0)
            self.stored.append((*place, (message.value() or b"").decode()))
        else:
            self.faults.append(str(error))

    async def goes_on(self, records: int = 1) -> None:
        before = len(self.stored)
        await until(lambda: len(self.stored) >= before + records, f"{records} more records are stored", WITHIN_S)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)


@asynccontextmanager
async def under_load(topic: str, *addresses: str) -> AsyncIterator[list[Load]]:
    loads = [
        Load(f"w{number}", address, topic, **{"enable.idempotence": True}) for number, address in enumerate(addresses)
    ]
    try:
        yield loads
    finally:
        for load in loads:
            await load.end()


def lost_of(loads: list[Load], there: list[str], partition: int) -> list[int]:
    """Offsets of records that producers had an answer for, and that are nowhere."""
    known = {*there}
    return sorted(
        at for load in loads for number, at, value in load.stored if number == partition and value not in known
    )


def check(partitions: list[standbys.StandbyPartition], loads: list[Load], there: list[str]) -> None:
    for each in partitions:
        lost = lost_of(loads, there, each.partition)
        print(
            f"{each.partition}: {len(lost)} lost, {each.lost_records} said, {each.position} to {each.acknowledged_end}"
        )
        assert each.loss_count == standbys.LOSS_COUNT_EXACT
        assert lost[-1] + 1 == each.acknowledged_end
        assert lost[0] >= each.position
        assert 0 <= each.lost_records - len(lost) <= UNANSWERED


@pytest.mark.timeout(300)
async def test_the_loss_under_load_is_what_producers_had_an_answer_for(
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    doomed: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic = unique_name("loaded")
    async with mesh_of(postgres, kafka_c1, doomed, topic, tmp_path) as mesh:
        first, second = (each.address for each in mesh.gateways)
        async with under_load(topic, first, second, first, second) as loads:
            await stand_by(mesh, topic, bytes_per_second=2000)
            await shown_when(mesh, lambda found: any(each.lag_records > 0 for each in found.topics))
            for load in loads:
                await load.goes_on(RECORDS)
            doomed.kill()
            standby = await fail_over(mesh)
            for load in loads:
                await load.goes_on()
        there = await asyncio.to_thread(read_all, first, topic)
    [failed_over] = standby.topics
    assert [load.faults for load in loads] == [[], [], [], []]
    assert list(standby.silent_gateways) == []
    assert failed_over.lag_records == sum(each.lost_records for each in failed_over.partitions)
    check(list(failed_over.partitions), loads, there)
