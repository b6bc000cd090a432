"""A sidecar that posts to its backend is killed under load: nothing is lost, and what comes twice says so."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fixtures.backend import Backend, Call, slow
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.sidecar_under_kills import SidecarProcess
from tests.fixtures.waiting import wait_until

KILLS = 2
PARTITIONS = 3
PROGRESS = 200
"""Records that get to the backend between two kills."""
WITHIN_S = 60.0
Place = tuple[int, int]


class Load:
    """Writes until it is told to stop; `acknowledged` is where."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: set[Place] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
        assert self._producer.flush(WITHIN_S) == 0

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=partition, on_delivery=self._told)
            self._producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add((message.partition() or 0, message.offset() or 0))


def places(calls: list[Call]) -> list[Place]:
    return [(record["partition"], record["offset"]) for call in calls for record in call.records]


@pytest.mark.timeout(300)
def test_kills_lose_nothing_and_what_comes_twice_has_the_key_of_where_it_was(
    kafka_c1: KafkaCluster, topic: str, group: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(WITHIN_S)
    await_leaders(admin, topic, PARTITIONS)
    load = Load(kafka_c1.bootstrap, topic)
    with Backend().running() as backend:
        backend.always(slow(0.02))
        sidecar = SidecarProcess(
            tmp_path, kafka_c1.bootstrap, reactive_topics=topic, reactive_group=group, value_format="string",
            backend_url=backend.host_url, reactive_group_instance_id=f"{group}-1", reactive_max_batch_records="10",
            session_timeout_ms="45000",  # only a kill begins a new life, however busy the machine is
        )  # fmt: skip
        load.start()
        with sidecar.running():
            for _ in range(KILLS):
                seen = len(backend.records)
                backend.wait_for_records(seen + PROGRESS, WITHIN_S)
                sidecar.kill()
                sidecar.start()
            backend.wait_for_records(len(backend.records) + PROGRESS, WITHIN_S)
            load.stop()
            wait_until(lambda: load.acknowledged <= set(places(backend.calls)), "nothing is lost", WITHIN_S)
        calls = backend.calls
    for partition in range(PARTITIONS):
        of_partition = [call for call in calls if call.records[0]["partition"] == partition]
        ranges = [(call.offsets[0], call.offsets[-1]) for call in of_partition]
        keys = [call.headers["idempotency-key"] for call in of_partition]
        assert keys == [f"{topic}-{partition}-{first}-{last}" for first, last in ranges]
        # within one life all comes once and in order; only a new life goes back, to what the dead one had not committed
        assert sum(after[0] <= before[1] for before, after in pairwise(ranges)) <= KILLS
