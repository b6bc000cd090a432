"""Counting by key, by Faust and by a topology of ours: records a second, recovery after kill -9, and what was counted.

Each has the topic full when it starts, is killed when a third is counted, and starts again in the same folder. The rate
is that from the first count to the kill; the recovery from the new start to the first new count. A count that comes
twice, or never, is an error: the counts of a key are 1, 2, 3 and so on. `MESH_BENCH_RECORDS`: of the topic.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.figures import Sheet, Table
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.stream_world import StreamWorld
from tests.integration.sidecar.world import Kafka

RECORDS = int(os.environ.get("MESH_BENCH_RECORDS", "20000"))
PARTITIONS = 3
KEYS = 100
WITHIN_S = 60.0
LOOK_S = 0.2
QUIET_S = 10.0
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
            "control_address": "",
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


def measured(name: str, world: StreamWorld, bootstrap: str, folder: Path) -> Result:
    folder.mkdir()
    command, environment, target = program(name, world, bootstrap, folder)
    short = target.removeprefix(world.prefix)

    def counted() -> int:
        return len(world.committed(short))

    with running(command, environment, folder / "log"):
        first = wait_until(counted, f"{name} counts", WITHIN_S)
        began = time.monotonic()
        before = wait_until(lambda: done if (done := counted()) > max(RECORDS // 3, first) else 0, "a third", WITHIN_S)
        rate = (before - first) / (time.monotonic() - began)
    before = counted()
    began = time.monotonic()
    with running(command, environment, folder / "log"):
        if before < RECORDS:
            wait_until(lambda: counted() > before, f"{name} goes on", WITHIN_S)
        recovery_s = time.monotonic() - began
        _wait_until_quiet(counted)
    seen = Counter((one.key, int(one.value)) for one in world.committed(short))
    wanted = {(f"k{key}", count) for key in range(KEYS) for count in range(1, RECORDS // KEYS + 1)}
    return Result(rate, recovery_s, len(wanted - seen.keys()), sum(seen.values()) - len(seen.keys() & wanted))


def _wait_until_quiet(counted: Callable[[], int]) -> None:
    last, since = -1, time.monotonic()
    while (now := counted()) < RECORDS or now != last:
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > QUIET_S:
            return
        time.sleep(LOOK_S)


@pytest.mark.timeout(1800)
def test_faust_and_ours(kafka_c1: KafkaCluster, tmp_path: Path, sheet: Sheet) -> None:
    world = StreamWorld(Kafka(kafka_c1.bootstrap), tmp_path)
    world.create("events", "ours", "at_least_once", "exactly_once", partitions=PARTITIONS)
    world.define(COUNTED)
    keys = [f"k{number % KEYS}" for number in range(RECORDS)]
    world.write("events", *((key, b"x" * 200) for key in keys), raw=True)
    rows: list[list[str]] = []
    for name, who in (
        ("ours", "ours, exactly once"),
        ("at_least_once", "Faust, at least once"),
        ("exactly_once", "Faust, exactly once"),
    ):
        try:
            one = measured(name, world, kafka_c1.bootstrap, tmp_path / name)
        except TimeoutError as error:
            rows.append([who, "-", "-", "-", str(error)])
        else:
            rows.append([who, f"{one.rate:.0f}", f"{one.recovery_s:.1f}", str(one.missing), str(one.twice)])
        print(" | ".join(rows[-1]), flush=True)
    columns = ["who", "records/s", "recovery s", "never counted", "counted twice or wrong"]
    sheet.add(Table(f"Counting {RECORDS} records of 200 B by {KEYS} keys, killed at a third", columns, rows))
