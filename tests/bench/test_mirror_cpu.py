"""What a mirrored record of 200 B costs in CPU, all threads and processes of the mirror counted, beside MirrorMaker 2.

Each copies a topic that is full when it starts. Counted is from when a fifth is on the target until all is: neither
the start of a process nor most of the JVM's warming up. `MESH_BENCH_RECORDS`: of the topic.
"""

from __future__ import annotations

import os
import random
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from services.router.forwarding.orders import RunRule
from tests.bench.copied import WITHIN_S, cost
from tests.bench.figures import Sheet, Table, spread, watched
from tests.clients.mirror_maker.driver import class_path
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.record_rules import Side, Workers, mirror, two_sides
from tests.fixtures.toolchains import need

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "1000000"))
RECORD_BYTES = 200
PARTITIONS = 4

ROUTER, MAKER, MAKER_ONCE = "mesh mirror, exactly once", "MirrorMaker 2, at least once", "MirrorMaker 2, exactly once"


@pytest.fixture
def sides(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Iterator[tuple[Side, Side]]:
    with two_sides(kafka_c1, kafka_c2) as both:
        yield both


@pytest.mark.network
@pytest.mark.timeout(3600)
def test_cpu_of_a_mirrored_record(sides: tuple[Side, Side], tmp_path: Path, sheet: Sheet, rounds: int) -> None:
    c1, c2 = sides
    full = c1.create(f"bench-mirror-{uuid.uuid4().hex[:8]}", PARTITIONS)
    _fill(c1, full)
    costs: dict[str, list[float]] = {ROUTER: [], MAKER: [], MAKER_ONCE: []}
    rates: dict[str, list[float]] = {name: [] for name in costs}
    others = []
    for number in range(rounds):
        for name in costs:
            folder = tmp_path / f"{number}-{list(costs).index(name)}"
            folder.mkdir()
            source = f"copy-{uuid.uuid4().hex[:8]}"
            copy = c2.will_have(f"{source}.{full}")
            running = (
                _router(sides, full, copy, folder) if name == ROUTER else _maker(sides, full, source, folder, name)
            )
            with running as process, watched(process) as disturbance:
                found = cost(c2, copy, RECORDS, process)
            costs[name].append(found.cpu_us)
            rates[name].append(found.per_second)
            others.append(disturbance.cores)
    title = f"A mirrored record: {RECORDS:,} of {RECORD_BYTES} B, {PARTITIONS} partitions, {rounds} rounds"
    rows = [[name, spread(costs[name], 2), spread(rates[name])] for name in costs]
    notes = [f"brokers and other programs kept {spread(others, 1)} cores busy meanwhile"]
    sheet.add(Table(title, ["mirror", "CPU us/record", "records/s"], rows, notes))
    assert all(cost > 0 for each in costs.values() for cost in each)


def _fill(side: Side, topic: str) -> None:
    """Values that compress about as JSON does."""
    chance = random.Random(1)
    words = [f"{chance.getrandbits(40):x}".encode() for _ in range(1000)]
    producer = side.producer(**{"queue.buffering.max.messages": 100_000, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(RECORDS):
        value = (b"%010d " % number + b" ".join(chance.choices(words, k=20)))[:RECORD_BYTES]
        while True:
            try:
                producer.produce(topic, value, b"key-%d" % (number % 5000), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WITHIN_S) == 0


@contextmanager
def _router(sides: tuple[Side, Side], topic: str, copy: str, folder: Path) -> Iterator[psutil.Process]:
    with Workers(folder / "workers.log", sides).running() as workers:
        rule_id = f"bench-{uuid.uuid4().hex[:8]}"
        workers.run(RunRule(mirror(rule_id, topic, target_topic=copy), 12, 11))
        yield psutil.Process(workers.pid)


@contextmanager
def _maker(sides: tuple[Side, Side], topic: str, source: str, folder: Path, name: str) -> Iterator[psutil.Process]:
    c1, c2 = sides
    factors = (
        "replication", "config.storage.replication", "offset.storage.replication", "status.storage.replication",
        "offset-syncs.topic.replication", "checkpoints.topic.replication", "heartbeats.topic.replication",
    )  # fmt: skip
    target = f"target-{source}"
    settings = {
        "clusters": f"{source}, {target}",
        f"{source}.bootstrap.servers": c1.bootstrap,
        f"{target}.bootstrap.servers": c2.bootstrap,
        f"{source}->{target}.enabled": "true",
        f"{source}->{target}.topics": topic,
        f"{target}->{source}.enabled": "false",
        "tasks.max": "2",
        "emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",
        f"{target}.exactly.once.source.support": "enabled" if name == MAKER_ONCE else "disabled",
        "dedicated.mode.enable.internal.rest": "true" if name == MAKER_ONCE else "false",
        "listeners": "http://127.0.0.1:0",
        # as much in a batch as the mesh's mirror puts there
        f"{target}.producer.compression.type": "lz4",
        f"{target}.producer.batch.size": "1000000",
        f"{target}.producer.linger.ms": "5",
        **{f"{what}.factor": "1" for what in factors},
    }
    properties = folder / "mirror.properties"
    properties.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()), encoding="ascii")
    command = [str(need("java")[0]), "-Xmx1g", "-cp", class_path()]
    command += ["org.apache.kafka.connect.mirror.MirrorMaker", str(properties)]
    with (folder / "mirror.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()
