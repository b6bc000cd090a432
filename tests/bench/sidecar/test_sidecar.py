"""The cost of a record in the sidecar, in and out, with and without audit, beside the original and confluent-kafka.

Batches of 100 JSON records over 4 connections; one record at a time over one connection; reads of the same records by
one instance. Figures, not verdicts.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.figures import Sheet, Table, median, ratios, spread, watched
from tests.bench.sidecar.load import Connection, closed_loop, get_request, produce_request
from tests.bench.sidecar.ways import SidecarWay, original_sidecar, our_sidecar
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until

BATCH = 100
CONNECTIONS = 4
BATCHES = int(os.environ.get("MESH_BENCH_BATCHES", "1500"))
"""Of a run."""
SINGLES = 300
READ_RECORDS = 50_000
IDLE_INSTANCES = 10
OURS = 2
"""Our sidecar without audit, and with audit to a topic; after them the original, in the same way."""
COLUMNS = (
    "way",
    "records/s",
    "us CPU a record",
    "p50 ms",
    "p99 ms",
    "single p50 ms",
    "single p99 ms",
    "us CPU a single record",
    "read records/s",
    "us CPU a read record",
    "RSS MB",
)
RECORDS = [
    {
        "key": f"key-{number}",
        "value": {
            "id": number,
            "name": "some name",
            "count": 17,
            "text": "lorem ipsum dolor sit amet consectetur adip",
        },
    }
    for number in range(BATCH)
]


@dataclass(slots=True)
class Runs:
    """Figures of one way, a value for each round."""

    rate: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    single_p50: list[float] = field(default_factory=list)
    single_p99: list[float] = field(default_factory=list)
    single_cpu_us: list[float] = field(default_factory=list)
    read_cpu_us: list[float] = field(default_factory=list)
    read_rate: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)


@pytest.fixture
def topic(kafka_c1: KafkaCluster, topic: str) -> str:
    """With another one beside it for audit."""
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1), NewTopic(_audit_of(topic), 1, 1)]).values():
        made.result(30)
    return topic


@pytest.fixture
def ways(kafka_c1: KafkaCluster, topic: str, tmp_path: Path) -> Iterator[tuple[list[SidecarWay], list[str]]]:
    """Those that run, and a note for each that does not."""
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(our_sidecar(kafka_c1.bootstrap, tmp_path)),
            stack.enter_context(our_sidecar(kafka_c1.bootstrap, tmp_path, audit_topic=_audit_of(topic))),
        ]
        try:
            running.append(stack.enter_context(original_sidecar(kafka_c1.bootstrap, tmp_path)))
            running.append(
                stack.enter_context(original_sidecar(kafka_c1.bootstrap, tmp_path, audit_topic=_audit_of(topic)))
            )
        except (Exception, pytest.skip.Exception) as fault:  # noqa: BLE001  # a peer that cannot be had is left out
            notes.append(f"without the original sidecar: {str(fault).splitlines()[0][:200]}")
        yield running, notes


@pytest.mark.timeout(900)
def test_produce_and_read(
    kafka_c1: KafkaCluster, ways: tuple[list[SidecarWay], list[str]], topic: str, rounds: int, sheet: Sheet
) -> None:
    sidecars, notes = ways
    figures = {way.name: Runs() for way in sidecars}
    direct = figures["confluent-kafka directly"] = Runs()
    for way in sidecars:  # warm; the original hangs if several first requests come at once
        closed_loop(way.port, produce_request(topic, RECORDS[:1]), connections=1, requests=1)
        closed_loop(way.port, produce_request(topic, RECORDS), connections=CONNECTIONS, requests=BATCHES)
        closed_loop(way.port, produce_request(topic, RECORDS[:1]), connections=1, requests=SINGLES)
        _read(way, topic, 1000, "warm")
    with watched(*(way.process for way in sidecars)) as others:
        for turn in range(rounds):
            for way in sidecars[turn % len(sidecars) :] + sidecars[: turn % len(sidecars)]:
                _measure(kafka_c1.bootstrap, way, topic, figures[way.name], f"round-{turn}")
            _measure_direct(kafka_c1.bootstrap, topic, direct)
    sheet.add(
        Table(
            f"Sidecar: {CONNECTIONS} connections of {BATCH}-record JSON batches, single records, active reads",
            COLUMNS,
            [_row(name, runs) for name, runs in figures.items()],
            [
                f"{rounds} rounds of {BATCHES} batches, {SINGLES} single records and a read of {READ_RECORDS} records; "
                "median (range); CPU is user and system time of all threads; of the direct client, its whole process",
                f"other processes kept {others.cores:.1f} cores busy",
                *_best(figures, sidecars),
                *notes,
            ],
        )
    )


def test_idle_instances(kafka_c1: KafkaCluster, tmp_path: Path, topic: str, sheet: Sheet) -> None:
    with (
        our_sidecar(kafka_c1.bootstrap, tmp_path) as way,
        httpx.Client(base_url=f"http://127.0.0.1:{way.port}") as http,
    ):
        _instance(http, topic, f"{topic}-first", "first")  # what the first one loads is not the instance's
        before = way.memory_mb()
        for number in range(IDLE_INSTANCES):
            _instance(http, topic, f"{topic}-idle", f"c{number}")
        after = way.memory_mb()
    sheet.add(
        Table(
            "Sidecar: idle consumer instances",
            ["instances", "RSS before MB", "RSS after MB", "MB an instance"],
            [[str(IDLE_INSTANCES), f"{before:.0f}", f"{after:.0f}", f"{(after - before) / IDLE_INSTANCES:.2f}"]],
        )
    )


def _audit_of(topic: str) -> str:
    return f"{topic}-audit"


def _measure(broker: str, way: SidecarWay, topic: str, runs: Runs, name: str) -> None:
    cpu = way.cpu_s()
    with _audited(broker, way, BATCHES // CONNECTIONS * CONNECTIONS * BATCH):
        batches = closed_loop(way.port, produce_request(topic, RECORDS), connections=CONNECTIONS, requests=BATCHES)
    runs.cpu_us.append((way.cpu_s() - cpu) / (BATCHES * BATCH) * 1e6)
    runs.rate.append(BATCHES * BATCH / batches.seconds)
    runs.p50.append(batches.percentile(0.5))
    runs.p99.append(batches.percentile(0.99))
    cpu = way.cpu_s()
    with _audited(broker, way, SINGLES):
        singles = closed_loop(way.port, produce_request(topic, RECORDS[:1]), connections=1, requests=SINGLES)
    runs.single_cpu_us.append((way.cpu_s() - cpu) / SINGLES * 1e6)
    runs.single_p50.append(singles.percentile(0.5))
    runs.single_p99.append(singles.percentile(0.99))
    cpu, began = way.cpu_s(), time.perf_counter()
    _read(way, topic, READ_RECORDS, name)
    runs.read_rate.append(READ_RECORDS / (time.perf_counter() - began))
    runs.read_cpu_us.append((way.cpu_s() - cpu) / READ_RECORDS * 1e6)
    runs.memory_mb.append(way.memory_mb())


@contextlib.contextmanager
def _audited(broker: str, way: SidecarWay, records: int) -> Iterator[None]:
    """Ends when so many more records are in the topic of audit, if there is one: audit is written a little later."""
    if not way.audit_topic:
        yield
        return
    place = TopicPartition(way.audit_topic, 0)
    watcher = Consumer({"bootstrap.servers": broker, "group.id": "unused"})

    def end() -> int:
        return int(watcher.get_watermark_offsets(place, timeout=30)[1])

    try:
        before = end()
        yield
        wait_until(lambda: end() >= before + records, f"{records} records are audited")
    finally:
        watcher.close()


def _instance(http: httpx.Client, topic: str, group: str, name: str) -> str:
    """A new instance that has its partition."""
    body = {"name": name, "keyFormat": "STRING", "valueFormat": "JSON", "autoOffsetReset": "earliest"}
    http.post(f"/consumers/{group}", json=body).raise_for_status()
    path = f"/consumers/{group}/instances/{name}"
    http.post(f"{path}/subscriptions", json={"topics": [topic]}).raise_for_status()
    return path


def _read(way: SidecarWay, topic: str, count: int, name: str) -> None:
    """By a new instance, from the beginning."""
    group = f"{topic}-{way.port}-{name}"
    with httpx.Client(base_url=f"http://127.0.0.1:{way.port}", timeout=60) as http:
        path = _instance(http, topic, group, "c1")
        connection = Connection(way.port)
        read = 0
        while read < count:
            read += connection.ask(get_request(f"{path}/records")).count(b'"offset":')
        connection.close()
        http.delete(path).raise_for_status()


def _measure_direct(broker: str, topic: str, runs: Runs) -> None:
    """The same records by the client library: four threads, each with a batch that it waits for."""
    client = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "acks": "all", "linger.ms": 1})
    values = [httpx.Request("POST", "http://x", json=record["value"]).content for record in RECORDS]
    used = _own_cpu_s()
    began = time.perf_counter()
    threads = [
        threading.Thread(target=_batches_directly, args=(client, topic, values, BATCHES // CONNECTIONS))
        for _ in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs.rate.append(BATCHES * BATCH / (time.perf_counter() - began))
    runs.cpu_us.append((_own_cpu_s() - used) / (BATCHES * BATCH) * 1e6)
    used = _own_cpu_s()
    latencies = sorted(_milliseconds(lambda: _one_directly(client, topic, values[0])) for _ in range(SINGLES))
    runs.single_cpu_us.append((_own_cpu_s() - used) / SINGLES * 1e6)
    runs.single_p50.append(latencies[SINGLES // 2])
    runs.single_p99.append(latencies[SINGLES * 99 // 100])
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    used, began, read = _own_cpu_s(), time.perf_counter(), 0
    while read < READ_RECORDS:
        read += len(consumer.consume(500, timeout=30))
    runs.read_rate.append(read / (time.perf_counter() - began))
    runs.read_cpu_us.append((_own_cpu_s() - used) / read * 1e6)
    consumer.close()


def _batches_directly(client: Producer, topic: str, values: list[bytes], batches: int) -> None:
    for _ in range(batches):
        left = [BATCH]

        def acknowledged(error: object, message: object, left: list[int] = left) -> None:
            left[0] -= 1

        for number, value in enumerate(values):
            client.produce(topic, value, f"key-{number}", on_delivery=acknowledged)
        while left[0]:
            client.poll(0.01)


def _one_directly(client: Producer, topic: str, value: bytes) -> None:
    client.produce(topic, value)
    client.flush(30)


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _own_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def _row(name: str, runs: Runs) -> list[str]:
    columns = (
        (runs.rate, 0),
        (runs.cpu_us, 1),
        (runs.p50, 1),
        (runs.p99, 1),
        (runs.single_p50, 2),
        (runs.single_p99, 2),
        (runs.single_cpu_us, 0),
        (runs.read_rate, 0),
        (runs.read_cpu_us, 1),
        (runs.memory_mb, 0),
    )
    return [name, *(spread(values, digits) if values else "-" for values, digits in columns)]


def _best(figures: dict[str, Runs], sidecars: list[SidecarWay]) -> Iterator[str]:
    """What a busy machine hides least: the best round, and what a core could do in a second."""
    for way in sidecars:
        runs = figures[way.name]
        yield (
            f"{way.name}: {1e6 / median(runs.cpu_us):,.0f} records in a second of one core, "
            f"{1e6 / min(runs.cpu_us):,.0f} in the best round"
        )
    for way, original in product(sidecars[:OURS], sidecars[OURS:]):
        ours, theirs = figures[way.name], figures[original.name]
        yield (
            f"{way.name} to {original.name}, CPU within a round: {spread(ratios(ours.cpu_us, theirs.cpu_us), 2)} "
            f"batched, {spread(ratios(ours.single_cpu_us, theirs.single_cpu_us), 2)} single"
        )
