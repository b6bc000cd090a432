"""The page "Migrate from MirrorMaker 2", with a real flow between two clusters that the mesh gets to know."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from local.leash import on_leash
from local.processes import log_tail
from tests.clients.java.driver import JVM_OPTIONS
from tests.clients.mirror_maker.driver import class_path
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import ROOT, blocks, section_of, steps, take
from tests.fixtures.record_rules import Side
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import wait_unless

PAGE = ROOT / "docs" / "how-to" / "migrate-from-mirrormaker-2.md"
SECTION = section_of(PAGE, "Steps")
COPIED, LATER = 40, 10
"""The page's positions follow from the first number."""
GROUP = "depot"
FOR_ONE_BROKER = "".join(
    f"{what}.factor = 1\n"
    for what in (
        "replication", "config.storage.replication", "offset.storage.replication", "status.storage.replication",
        "offset-syncs.topic.replication", "checkpoints.topic.replication", "heartbeats.topic.replication",
    )
)  # fmt: skip
STOP_S = 60.0
WITHIN_S = 120.0
pytestmark = pytest.mark.timeout(400)


@contextmanager
def mirror_maker(properties: str, folder: Path) -> Iterator[Path]:
    """Its log. Stopped in order at the end."""
    file, log = folder / "mm2.properties", folder / "mm2.log"
    file.write_text(properties + FOR_ONE_BROKER, encoding="ascii")
    jvm = [str(need("java")[0]), *JVM_OPTIONS, "-cp", class_path()]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            on_leash([*jvm, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)]), stdout=stream, stderr=stream
        )
    try:
        yield log
    finally:
        process.terminate()
        process.wait(STOP_S)


def send(cluster: KafkaCluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in numbers:
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(WITHIN_S) == 0


def committed(cluster: KafkaCluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{GROUP}-{topic}"})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=WITHIN_S)
    consumer.close()
    return int(found.offset)


def commit(cluster: KafkaCluster, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{GROUP}-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_flow_of_mirror_maker_becomes_a_mirror_without_a_gap(
    mesh: Mesh, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, tmp_path: Path
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:6]}"
    source, target = Side("a", kafka_c1.bootstrap), Side("b", kafka_c2.bootstrap)
    source.create(topic, 1)
    instead = {
        "orders": topic,
        "orders-compare": f"{topic}-compare",
        "broker-a:9092": kafka_c1.bootstrap,
        "broker-b:9092": kafka_c2.bootstrap,
    }
    (flow,) = blocks(SECTION, "properties")
    for told, found in instead.items():
        flow = flow.replace(told, found)
    register, position, mirror, lag, groups = steps(SECTION)
    here = mesh.state.parent

    def values() -> list[int]:
        return [int(each.value or b"") for each in target.read(topic)] if target.partitions(topic) else []

    send(kafka_c1, topic, range(COPIED))
    try:
        with mirror_maker(flow, tmp_path) as log:
            wait_unless(
                lambda: None if values() == list(range(COPIED)) else log_tail(log), "MirrorMaker 2 copies", WITHIN_S
            )
            take(register, here, instead)
        take(position, here, instead)
        send(kafka_c1, topic, range(COPIED, COPIED + LATER))
        take(mirror, here, instead)
        take(lag, here, instead)
        assert values() == list(range(COPIED + LATER)), "each record once, in order"

        commit(kafka_c1, topic, COPIED + 5)
        take(groups, here, instead)
        wait_unless(
            lambda: None if committed(kafka_c2, topic) == COPIED + 5 else str(committed(kafka_c2, topic)),
            "the group has its place on the target",
            WITHIN_S,
        )
    finally:
        for rule in (topic, f"{topic}-compare"):
            mesh.meshctl("mirror", "remove", rule, check=False)
        for cluster in ("a", "b"):
            mesh.meshctl("cluster", "remove", cluster, check=False)
