"""An upgrade as `docs/how-to/upgrade.md` orders it, and the way back, under load: no application meets an error.

Two gateways stand behind one address. Each part is replaced in turn, so parts of both releases work together. After
each step a topic moves to the other cluster.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import (
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
)

from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.databases import PostgresServer
from tests.fixtures.ports import free_block
from tests.fixtures.releases import Release
from tests.fixtures.two_of_everything import TwoOfEverything
from tests.fixtures.waiting import until
from tests.integration.control.world import create_topic
from tests.integration.gateway.gateways import Turns
from tests.integration.gateway.sharing import set_up
from tests.integration.router.parts import ServiceProcess

CLIENTS = ("java-4.4", "confluent", "franz-go")
WITHIN_S = 120.0
STEP_RECORDS = 10
"""Of transactions and of a share group, between two steps."""
DRAIN_S = "10"
"""The gateway's default."""
LOST = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""A client library connects again by itself, and says so."""


class Loop:
    """Something that an application does again and again, in a thread of its own. `once` says whether it was done."""

    def __init__(self, once: Callable[[int], bool], end: Callable[[], None]) -> None:
        self.done = 0
        self.faults: list[str] = []
        self._once, self._end = once, end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            for number in count():
                if self._stop.is_set():
                    break
                self.done += self._once(number)
            self._end()
        except KafkaException as error:
            self.faults.append(repr(error))

    async def goes_on(self) -> None:
        wanted = self.done + STEP_RECORDS

        def is_further() -> bool:
            assert not self.faults, self.faults
            return self.done >= wanted

        await until(is_further, f"{wanted} rounds", WITHIN_S)

    async def end(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join, WITHIN_S)
        assert not self._thread.is_alive(), "the application hangs in a call"


class Payments:
    """A transaction a round, with a record for each partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.committed: dict[str, float] = {}
        """The time of the commit of each record."""
        self.seconds: list[float] = []
        """The time of each transaction, from its begin to its commit."""
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        self._producer.init_transactions(WITHIN_S)
        self.loop = Loop(self._once, lambda: None)

    def _once(self, number: int) -> bool:
        began = time.monotonic()
        values = [f"payment-{number}-{partition}" for partition in range(2)]
        self._producer.begin_transaction()
        for partition, value in enumerate(values):
            self._producer.produce(self._topic, value, partition=partition)
        self._producer.commit_transaction(WITHIN_S)
        now = time.monotonic()
        self.committed |= dict.fromkeys(values, now)
        self.seconds.append(now - began)
        return True


class Workers:
    """A member of a share group: each record that it has had is acknowledged with the next poll."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.had: dict[str, float] = {}
        """The time at which each record came first."""
        self._consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
        self._consumer.subscribe([topic])
        self.loop = Loop(self._poll, self._consumer.close)

    def _poll(self, _: int) -> bool:
        found = False
        for message in self._consumer.poll(0.5):
            if (error := message.error()) is None:
                self.had.setdefault((message.value() or b"").decode(), time.monotonic())
                found = True
            elif error.code() not in LOST:
                raise KafkaException(error)
        return found


@pytest.mark.timeout(1800)
async def test_parts_of_two_releases_work_together_while_each_is_replaced_and_back(
    earlier_release: Release,
    postgres: PostgresServer,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    moving, steady, port = unique_name("moving"), unique_name("steady"), free_block(1)
    for cluster in (kafka_c1, kafka_c2):
        create_topic(cluster.bootstrap, moving, 2)
    create_topic(kafka_c1.bootstrap, steady, 2)
    set_up(kafka_c1.bootstrap, f"{steady}-workers")
    database = postgres()
    migrated(database, earlier_release)
    gateways = {"ADVERTISED": f"127.0.0.1:{port}", "DRAIN_TIMEOUT_S": DRAIN_S}
    async with TwoOfEverything(
        database, kafka_c1, kafka_c2, f"{moving}.events", tmp_path, release=earlier_release, gateway_settings=gateways
    ) as mesh:
        await mesh.moves(moving, "c1")
        await mesh.moves(steady, "c1")
        await mesh.start_gateways()
        turns = Turns([each.address for each in mesh.gateways], port)
        load = await TopicUnderLoad.start_of(turns.address, moving, f"{moving}-readers", CLIENTS)
        payments, workers = Payments(turns.address, steady), Workers(turns.address, steady, f"{steady}-workers")
        loops = (payments.loop, workers.loop)
        try:
            load.expect_lost_connections()
            target = "c2"
            steps = [
                *((part, None) for part in (*mesh.gateways, *mesh.routers, *mesh.controls)),
                *((part, earlier_release) for part in (*mesh.routers, *mesh.gateways)),
            ]
            for part, release in steps:
                if part is mesh.controls[0]:
                    migrated(database, None)
                await replaced(mesh, part, release)
                await mesh.moves(moving, target)
                target = "c1" if target == "c2" else "c2"
                await load.progress()
                for loop in loops:
                    await loop.goes_on()
                print(f"{part.log_file.stem} is of {'this release' if release is None else release.commit[:8]}")
        finally:
            await asyncio.gather(*(loop.end() for loop in loops))
            await load.stop()
            turns.close()
    here, there = Upstream("c1", kafka_c1.bootstrap), Upstream("c2", kafka_c2.bootstrap)
    await load.check([here, there])
    assert [loop.faults for loop in loops] == [[], []]
    assert sorted(record.value for record in await here.read(steady)) == sorted(payments.committed)
    assert workers.had.keys() <= payments.committed.keys()
    print(f"{len(load.acked)} records, {payments.loop.done} transactions, {len(workers.had)} records of a share group")
    waits = sorted(max(0.0, at - payments.committed[value]) for value, at in workers.had.items())
    told = {**load.latencies, "transactions": sorted(payments.seconds), "share group, from the commit": waits}
    for client, seconds in told.items():
        print(f"{client}: {', '.join(f'p{share} {ms(seconds, share)} ms' for share in (50, 99, 100))}")


def migrated(database: str, release: Release | None) -> None:
    """As the page says: `kafka-mesh migrate` of the release that control gets."""
    python, folder = (release.python, release.folder) if release else (sys.executable, None)
    subprocess.run(
        [python, "-m", "local.cli", "migrate"],
        cwd=folder,
        env={**os.environ, "KAFKA_MESH_CONTROL_DATABASE_URL": database},
        check=True,
        timeout=WITHIN_S,
    )


async def replaced(mesh: TwoOfEverything, part: ServiceProcess, release: Release | None) -> None:
    """It stops in order, and starts as a part of the release (None: this one)."""
    await asyncio.to_thread(part.stop)
    part.release = release
    part.start()
    await mesh.is_well()


def ms(seconds: Sequence[float], share: int) -> int:
    return round(1000 * seconds[min(len(seconds) - 1, len(seconds) * share // 100)])
