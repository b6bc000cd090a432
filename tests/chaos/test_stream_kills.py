"""A sidecar that runs a topology is killed under load: each record counts once, by whoever goes on with it."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from confluent_kafka import Producer

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.stream_world import StreamWorld
from tests.integration.sidecar.world import Kafka

WITHIN_S = 60.0
PARTITIONS = 4
KEYS = 20
PROGRESS = 200
"""Records that are counted between two kills."""
SESSION_MS = "6000"
"""The shortest that brokers take."""

COUNTED = """
def counted():
    topology = Topology("counted")
    events = topology.stream(P + "events")
    events.group(lambda _, event: event["group"]).count(store="groups").updates().to(P + "counts")
    return topology
"""


class Load(threading.Thread):
    """Writes until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._stopping = threading.Event()
        self.written: dict[str, int] = defaultdict(int)

    def run(self) -> None:
        chance = random.Random(7)
        while not self._stopping.wait(0.02):
            for _ in range(10):
                group = f"g{chance.randrange(KEYS)}"
                self._producer.produce(self._topic, orjson.dumps({"group": group}), key=str(chance.random()))
                self.written[group] += 1
            self._producer.flush(WITHIN_S)

    def stop(self) -> None:
        self._stopping.set()
        self.join(WITHIN_S)


def status(sidecar: SidecarProcess) -> dict[str, Any]:
    try:
        found = httpx.get(f"{sidecar.address}/adm/streams", timeout=WITHIN_S).json()
    except httpx.TransportError:
        found = []
    return dict(found[0]) if found else {"state": "away", "tasks": [], "standby": 0}


@pytest.mark.timeout(300)
def test_a_standby_takes_over_and_every_record_counts_once(
    kafka_c1: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = StreamWorld(Kafka(kafka_c1.bootstrap), tmp_path)
    world.create("events", "counts", partitions=PARTITIONS)
    world.define(COUNTED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    def sidecar(name: str) -> SidecarProcess:
        folder = tmp_path / name
        folder.mkdir()
        return SidecarProcess(
            folder,
            kafka_c1.bootstrap,
            name=world.prefix + name,
            streams=world.reference("counted"),
            streams_application_id=world.prefix + "app",
            streams_standby="true",
            session_timeout_ms=SESSION_MS,
        )

    def counted() -> int:
        return len(counts.so_far())

    def progress() -> None:
        before = counted()
        wait_until(lambda: counted() >= before + PROGRESS, "records are counted", WITHIN_S)

    load = Load(kafka_c1.bootstrap, world.prefix + "events")
    with closing(world.following("counts")) as counts, sidecar("a").running() as a, sidecar("b").running() as b:
        wait_until(lambda: len(status(a)["tasks"]) == len(status(b)["tasks"]) == PARTITIONS, "both work", WITHIN_S)
        # each store is followed by whoever does not work on it
        wait_until(lambda: status(a)["standby"] + status(b)["standby"] == PARTITIONS, "both follow", WITHIN_S)
        load.start()
        progress()
        time.sleep(random.Random(7).uniform(0, 0.3))  # the point of the kill, not a wait for something
        a.kill()
        wait_until(lambda: len(status(b)["tasks"]) == 2 * PARTITIONS, "the other has all of it", WITHIN_S)
        progress()
        a.start()  # with a state that is behind by then
        wait_until(lambda: len(status(a)["tasks"]) == PARTITIONS, "it has its share again", WITHIN_S)
        progress()
        load.stop()
        wait_until(lambda: counted() >= sum(load.written.values()), "all are counted", WITHIN_S)
    seen: dict[str, list[int]] = defaultdict(list)
    for one in world.committed("counts"):
        seen[one.key].append(one.value)
    assert seen == {group: list(range(1, count + 1)) for group, count in load.written.items()}
