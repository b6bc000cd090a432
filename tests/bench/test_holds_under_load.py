"""How long writes wait while their topic moves under load: a whole mesh with two gateways, producers at both.

A topic moves to and fro. Each gateway tells how long it has held (`hold_seconds`), so one move is two holds; producers
tell how long each of their records took, those that waited among them. All that was acknowledged is stored once, or the
figures count for nothing.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from local.layout import STATE_FOLDER
from tests.bench.figures import Sheet, Table
from tests.clients.world import Addresses, World
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.waiting import wait_until

MOVES = int(os.environ.get("MESH_BENCH_MOVES", "60"))
PARTITIONS = 6
GATEWAYS = ("gateway", "gateway-2")
SINGLE_RECORDS_PER_S = 400
"""Of each of two producers at each gateway, 1 KiB each, sent one by one ..."""
BULK_BYTES_PER_S = 4_000_000
"""... and of one more, which sends requests of 100 KiB and more."""
RECORD_BYTES = 1024
GOAL_P99_S, GOAL_MAX_S = 0.250, 1.0
BETWEEN_MOVES = 40
"""Records of each producer that are acknowledged: a move does not meet the end of the one before."""
METRIC = "kafka_mesh_gateway_hold_seconds"
NOT_BY_THE_CLOCK = 900


@dataclass(slots=True)
class Writer:
    """A producer at a steady rate in a thread of its own."""

    bootstrap: str
    topic: str
    records_per_s: int
    linger_ms: int
    seconds: list[float] = field(default_factory=list)
    """That each record took, from the application's call to the acknowledgement."""
    errors: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": self.linger_ms,
                "batch.size": 1_000_000,
            }
        )
        began, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - began) * self.records_per_s)
            while sent < due:
                self._write(producer, sent)
                sent += 1
            producer.poll(0.005)
        producer.flush(30)

    def _write(self, producer: Producer, number: int) -> None:
        called = time.monotonic()

        def told(error: object, _: object) -> None:
            if error is None:
                self.seconds.append(time.monotonic() - called)
            else:
                self.errors.append(str(error))

        producer.produce(self.topic, bytes(RECORD_BYTES), partition=number % PARTITIONS, on_delivery=told)


@contextmanager
def writing(writers: Sequence[Writer]) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=writer.run, args=(stop,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@dataclass(slots=True)
class Holds:
    """Of one gateway."""

    url: str
    seconds: list[float] = field(default_factory=list)
    _sum: float = 0.0
    _count: float = 0.0

    def look(self) -> None:
        """After a move. The first look is at what was before."""
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(METRIC))
        total, count = float(values[f"{METRIC}_sum"]), float(values[f"{METRIC}_count"])
        if count > self._count:
            self.seconds.append((total - self._sum) / (count - self._count))
        self._sum, self._count = total, count


@pytest.mark.timeout(NOT_BY_THE_CLOCK)
async def test_holds_under_load(kafka_jars: None, tmp_path: Path, sheet: Sheet) -> None:
    with ExitStack() as stack:
        mesh = stack.enter_context(running_mesh(tmp_path / STATE_FOLDER, "--gateways", "2"))
        world = World.at(Addresses.of(mesh))
        assert world.operator is not None
        topic = await world.topic_on_both(PARTITIONS)
        await world.operator.move(topic, "c1")
        holds = [Holds(mesh.metrics(gateway)) for gateway in GATEWAYS]
        for each in holds:
            each.look()
            each.seconds.clear()
        writers = _writers(mesh, topic)
        calls: list[float] = []
        with writing(writers):
            for number in range(MOVES):
                await _progress(writers)
                began = time.monotonic()
                await world.operator.move(topic, ("c2", "c1")[number % 2])
                calls.append(time.monotonic() - began)
                for each in holds:
                    each.look()
        acknowledged = sum(len(writer.seconds) for writer in writers)
        errors = [error for writer in writers for error in writer.errors]
        assert not errors, errors[:3]
        stored = sum(_stored(cluster, topic) for cluster in (mesh.cluster("c1"), mesh.cluster("c2")))
        assert stored == acknowledged, "all that was acknowledged is there, once"
        await world.clean_up()

    single = [each for writer in writers[::2] for each in writer.seconds]
    bulk = [each for writer in writers[1::2] for each in writer.seconds]
    rows = [
        _row("hold, each gateway", [each for found in holds for each in found.seconds]),
        _row("the operator's call", calls),
        _row("a single record, all the while", single),
        _row("a record of large requests, all the while", bulk),
    ]
    goal = f"the goal of a hold: p99 at most {1000 * GOAL_P99_S:.0f} ms, never over {1000 * GOAL_MAX_S:.0f} ms"
    load = (
        f"{MOVES} moves under {acknowledged:,} records of 1 KiB by {len(writers)} producers; none was lost or doubled"
    )
    sheet.add(Table("Rule changes under load", ["what", "n", "p50 ms", "p99 ms", "max ms"], rows, [goal, load]))


def _writers(mesh: Mesh, topic: str) -> list[Writer]:
    """At each gateway one that sends single records and one of large requests, in turn."""
    made = []
    for gateway in GATEWAYS:
        address = mesh.endpoints[gateway]
        made.append(Writer(address, topic, 2 * SINGLE_RECORDS_PER_S, 0))
        made.append(Writer(address, topic, BULK_BYTES_PER_S // RECORD_BYTES, 50))
    return made


async def _progress(writers: Sequence[Writer]) -> None:
    wanted = {id(writer): len(writer.seconds) + BETWEEN_MOVES for writer in writers}

    def all_went_on() -> bool:
        return all(len(writer.seconds) >= wanted[id(writer)] for writer in writers)

    await asyncio.to_thread(wait_until, all_went_on, f"each has {BETWEEN_MOVES} more acknowledged")


def _stored(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30) for n in range(PARTITIONS)]
        return sum(high - low for low, high in marks)
    finally:
        consumer.close()


def _row(what: str, seconds: Sequence[float]) -> list[str]:
    ordered = sorted(seconds)
    found = (1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99, 1.0))
    return [what, str(len(ordered)), *(f"{each:.1f}" for each in found)]
