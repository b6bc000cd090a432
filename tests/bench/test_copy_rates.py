"""How fast the copy of a move is: a topic that is full, and one that is written meanwhile; small batches and large.

A source of small batches is a source whose producers do not linger. The copy must keep up with it, or no cut begins.
`MESH_BENCH_BATCHES`: of the full topic, of small ones.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mesh.rpc import record_rules
from services.router.forwarding.orders import RunRule
from tests.bench.copied import WITHIN_S, cost
from tests.bench.figures import Sheet, Table, spread, watched
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, Workers, ends, two_sides
from tests.fixtures.waiting import wait_until

BATCHES = int(os.environ.get("MESH_BENCH_BATCHES", "20000"))
RECORD_BYTES = 1000
LARGE = 100
"""Records of a large batch ..."""
LARGER = 10
"""... and the factor of the records of their topic: it is copied sooner."""
WRITTEN_PER_S, WRITTEN_S = 2000, 10
KINDS: dict[str, dict[str, object]] = {
    "batches of 1 record": {"batch.num.messages": 1, "linger.ms": 0},
    "batches of 1 record, lz4": {"batch.num.messages": 1, "linger.ms": 0, "compression.type": "lz4"},
    f"batches of {LARGE} records": {"batch.num.messages": LARGE, "linger.ms": 50},
}
"""How the producer of the source is set."""


@pytest.fixture
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.mark.timeout(1800)
def test_rates_of_a_copy(sides: tuple[Side, Side], tmp_path: Path, sheet: Sheet, rounds: int) -> None:
    c1, _ = sides
    rows, others = [], []
    for kind, settings in KINDS.items():
        full = c1.create(f"bench-copy-{uuid.uuid4().hex[:8]}")
        records = BATCHES * (LARGER if settings["batch.num.messages"] == LARGE else 1)
        _write(c1, full, records, settings)
        cpu, rates = [], []
        for _ in range(rounds):
            with _copying(sides, full, tmp_path) as process, watched(process) as disturbance:
                found = cost(sides[1], full, records, process)
            cpu.append(found.cpu_us)
            rates.append(found.per_second)
            others.append(disturbance.cores)
        live = [_seconds_behind(sides, tmp_path, settings) for _ in range(rounds)]
        print(kind, rates, cpu, live, flush=True)
        rows.append([kind, spread(rates), spread(cpu), spread([1000 * each for each in live])])
    columns = ["source", "records/s", "CPU us/record", f"ms behind, of {WRITTEN_S} s with {WRITTEN_PER_S} records/s"]
    notes = [f"brokers and other programs kept {spread(others, 1)} cores busy meanwhile"]
    sheet.add(Table(f"A copied record of {RECORD_BYTES} B: {BATCHES:,}, 1 partition", columns, rows, notes))


def _seconds_behind(sides: tuple[Side, Side], folder: Path, settings: dict[str, object]) -> float:
    """From the last record of a producer with a steady rate until the copy has it."""
    c1, c2 = sides
    topic = c1.create(f"bench-copy-{uuid.uuid4().hex[:8]}")
    number = WRITTEN_PER_S * WRITTEN_S
    with _copying(sides, topic, folder):
        writing = threading.Thread(target=_write, args=(c1, topic, number, settings, WRITTEN_PER_S))
        writing.start()
        writing.join()
        last = time.monotonic()
        wait_until(lambda: ends(c2, topic)[topic, 0] >= number, "the copy is level", WITHIN_S)
        return time.monotonic() - last


def _write(side: Side, topic: str, number: int, settings: dict[str, object], per_second: float = 0) -> None:
    producer = side.producer(**{"queue.buffering.max.messages": 10_000, **settings})
    chance, began = random.Random(1), time.monotonic()
    words = b" ".join(b"%x" % chance.getrandbits(20) for _ in range(20))  # each codec makes a record smaller
    value = (words * RECORD_BYTES)[:RECORD_BYTES]
    for each in range(number):
        while per_second and (early := began + each / per_second - time.monotonic()) > 0:
            producer.poll(early)
        while True:
            try:
                producer.produce(topic, value, b"key-%d" % (each % 5000), 0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WITHIN_S) == 0


@contextmanager
def _copying(sides: tuple[Side, Side], topic: str, folder: Path) -> Iterator[psutil.Process]:
    """A worker of a router copies the topic to a new one."""
    c1, c2 = sides
    c2.create(topic)
    spec = record_rules.RecordRuleSpec(
        record_rule_id=f"bench-{uuid.uuid4().hex[:8]}",
        copy=record_rules.CopySpec(source_cluster=c1.name, topic=topic, target_cluster=c2.name, target_topic=topic),
    )
    try:
        with Workers(folder / "workers.log", sides).running() as workers:
            workers.run(RunRule(spec, 12, 11))
            yield psutil.Process(workers.pid)
    finally:
        c2.delete(topic)
