"""Counting by key, by Faust, Quix Streams and a topology of ours: records a second, recovery after kill -9, counts.

Each has the topic full when it starts, is killed when a third is counted, and starts again in the same folder. The rate
is that from the first counts seen to the kill; the recovery from the new start to the first new count. A count that
comes twice, or never, is an error: the counts of a key are 1, 2, 3 and so on. `MESH_BENCH_RECORDS`: of the topic.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.bench.figures import Sheet, Table
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.stream_world import StreamWorld
from tests.integration.sidecar.world import Kafka

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "30000"))
QUIX_PYTHON = Path(sys.prefix) / "quix" / "bin" / "python"
"""The environment of Quix Streams, which `make bench QUIX=1` makes."""
PARTITIONS = 3
KEYS = 100
WITHIN_S = 120.0
QUIET_S = 20.0
"""One that writes nothing for so long is done, whatever it has counted."""

COUNTED = """
def counted():
    topology = Topology("counted")
    events = topology.stream(P + "events", value=Format.STRING)
    events.group().count(store="counts").updates().to(P + "ours")
    return topology
"""


@dataclass(frozen=True)
class Result:
    rate: float
    recovery_s: float
    missing: int
    twice: int


def program(name: str, world: StreamWorld, bootstrap: str, folder: Path) -> tuple[list[str], dict[str, str], str]:
    """What to run, in which environment, and the topic that it writes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(world.folder), str(Path(__file__).parents[3])])}
    if name == "ours":
        settings = {
            "listen": "127.0.0.1:0",
            "metrics_listen": "127.0.0.1:0",
            "bootstrap_servers": bootstrap,
            "control_addresses": "",
            "state_dir": str(folder),
            "name": f"{world.prefix}sidecar",
            "session_timeout_ms": "6000",
            "streams": world.reference("counted"),
            "streams_application_id": f"{world.prefix}app",
            "log_level": "ERROR",
        }
        environment |= {f"KAFKA_MESH_SIDECAR_{key.upper()}": value for key, value in settings.items()}
        return [sys.executable, "-m", "services.sidecar"], environment, f"{world.prefix}ours"
    target = f"{world.prefix}{name}"
    if name.startswith("quix"):
        script = str(Path(__file__).with_name("streams_quix.py"))
        arguments = [bootstrap, f"{world.prefix}events", target, str(folder), name.removeprefix("quix-")]
        return [str(QUIX_PYTHON), script, *arguments], environment, target
    script = str(Path(__file__).with_name("streams_faust.py"))
    arguments = [bootstrap, f"{world.prefix}events", target, str(PARTITIONS), str(folder), name]
    return [sys.executable, script, *arguments, "worker", "--without-web"], environment, target


@contextmanager
def running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """Ends by kill -9."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.kill()
        process.wait(WITHIN_S)


class Counts(threading.Thread):
    """Follows what is written, as a reader of committed records sees it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._ending = threading.Event()
        self.seen: Counter[tuple[str, int]] = Counter()
        self.last_at = self.first_at = 0.0
        self.first = self.total = 0

    def run(self) -> None:
        while not self._ending.is_set():
            found = [one for one in self._consumer.consume(10_000, 0.05) if one.error() is None]
            if not found:
                continue
            self.last_at = time.monotonic()
            self.seen.update(((one.key() or b"").decode(), int(one.value() or 0)) for one in found)
            self.total += len(found)
            if not self.first:
                self.first, self.first_at = self.total, self.last_at
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join(WITHIN_S)


def measured(name: str, world: StreamWorld, bootstrap: str, folder: Path) -> Result:
    folder.mkdir()
    command, environment, target = program(name, world, bootstrap, folder)
    counts = Counts(bootstrap, target)
    counts.start()
    try:
        with running(command, environment, folder / "log"):
            wait_until(lambda: counts.total > RECORDS // 3, f"{name} counts a third", WITHIN_S)
            rate = (counts.total - counts.first) / max(counts.last_at - counts.first_at, 0.001)
        wait_until(lambda: time.monotonic() - counts.last_at > 1, "what was written is read", WITHIN_S)
        began = time.monotonic()
        with running(command, environment, folder / "log"):
            wait_until(lambda: counts.last_at > began or len(counts.seen) >= RECORDS, f"{name} goes on", WITHIN_S)
            recovery_s = counts.last_at - began
            wait_until(
                lambda: len(counts.seen) >= RECORDS or time.monotonic() - counts.last_at > QUIET_S, "the end", WITHIN_S
            )
    finally:
        counts.end()
    wanted = {(f"k{key}", count) for key in range(KEYS) for count in range(1, RECORDS // KEYS + 1)}
    return Result(rate, recovery_s, len(wanted - counts.seen.keys()), counts.total - len(counts.seen.keys() & wanted))


@pytest.mark.timeout(1800)
def test_faust_quix_and_ours(kafka_c1: KafkaCluster, tmp_path: Path, sheet: Sheet) -> None:
    world = StreamWorld(Kafka(kafka_c1.bootstrap), tmp_path)
    runners = [
        ("ours", "ours, exactly once"),
        ("at_least_once", "Faust, at least once"),
        ("exactly_once", "Faust, exactly once"),
    ]
    if QUIX_PYTHON.exists():
        runners += [
            ("quix-at-least-once", "Quix Streams, at least once"),
            ("quix-exactly-once", "Quix Streams, exactly once"),
        ]
    world.create("events", *(name for name, _ in runners), partitions=PARTITIONS)
    world.define(COUNTED)
    keys = [f"k{number % KEYS}" for number in range(RECORDS)]
    world.write("events", *((key, b"x" * 200) for key in keys), raw=True)
    rows: list[list[str]] = []
    for name, who in runners:
        try:
            one = measured(name, world, kafka_c1.bootstrap, tmp_path / name)
        except TimeoutError as error:
            rows.append([who, "-", "-", "-", str(error)])
        else:
            rows.append([who, f"{one.rate:.0f}", f"{one.recovery_s:.1f}", str(one.missing), str(one.twice)])
        print(" | ".join(rows[-1]), flush=True)
    columns = ["who", "records/s", "recovery s", "never counted", "counted twice or wrong"]
    sheet.add(Table(f"Counting {RECORDS} records of 200 B by {KEYS} keys, killed at a third", columns, rows))
