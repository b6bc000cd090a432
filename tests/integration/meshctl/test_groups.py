"""`meshctl groups` against a real control that samples a real group."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import wait_unless
from tests.integration.control.world import create_topic

Meshctl = Callable[..., subprocess.CompletedProcess[str]]
WITHIN_S = 60.0


def test_lag_of_a_group_and_its_course(meshctl: Meshctl, kafka_c1: KafkaCluster) -> None:
    name = f"groups-{uuid.uuid4().hex[:8]}"
    create_topic(kafka_c1.bootstrap, name, 1)
    meshctl("cluster", "register", "c1", kafka_c1.bootstrap)
    meshctl("rule", "set", "--topic", name, "--to", "c1", "--wait")
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
    for _ in range(12):
        producer.produce(name, b"fruit", partition=0)
    assert producer.flush(WITHIN_S) == 0
    consumer = Consumer({"bootstrap.servers": kafka_c1.bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 0, 5)], asynchronous=False)
    consumer.close()

    def obstacle() -> str | None:
        done = meshctl("groups", "lag", name, check=False)
        return None if done.returncode == 0 and "7 records behind" in done.stdout else done.stdout + done.stderr

    wait_unless(obstacle, "the group is sampled", WITHIN_S)
    shown = meshctl("groups", "lag", name, "--above", "5", "--step", "10s", "--since", "5m").stdout.splitlines()
    assert shown[0].split()[:6] == ["TOPIC", "PARTITION", "LAG", "BEHIND", "ABOVE", "5"]
    assert shown[1].split()[:3] == [name, "0", "7"]
    assert "before" in shown[1], "all samples are above"
    assert shown[2] == "7 records behind in 1 partition."
    told = json.loads(meshctl("groups", "lag", name, "--topic", name, "-o", "json").stdout)
    assert told["partitions"][0]["last"]["records"] == "7"
    assert told["partitions"][0]["last"]["at_least"], "written before the first sample"
    row = next(line for line in meshctl("groups", "list", "--part", name).stdout.splitlines() if name in line)
    assert row.split() == [name, "empty", "classic", "-", "-", "7"], "no cluster coordinates a group without members"
    wrong = meshctl("groups", "lag", name, "--step", "soon", check=False)
    assert wrong.returncode == 2
    assert "no length of time" in wrong.stderr
    assert "no sample of group 'nobody'" in meshctl("groups", "lag", "nobody", check=False).stderr
