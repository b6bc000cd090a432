"""`kafka-mesh load` against a real cluster: it keeps its rate, stops by itself and accounts for every record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.fixtures.clusters import KafkaCluster

WITHIN_S = 100


@pytest.fixture
def run_load(kafka_c1: KafkaCluster) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "local.cli", "load", *arguments, "--bootstrap", kafka_c1.bootstrap]
        return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    return run


def test_a_bounded_run_loses_and_doubles_nothing(
    run_load: Callable[..., subprocess.CompletedProcess[str]], kafka_c1: KafkaCluster, topic: str
) -> None:
    other = f"{topic}-b"
    arguments = ["--rate", "400", "--duration", "3", "--producers", "2", "--consumers", "2", "--partitions", "4"]
    done = run_load(topic, other, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert 0 < summary["sent"] <= 1200  # a slow machine may not send all that is due before the end
    assert summary["delivered"] == summary["received"] == summary["sent"]
    assert (summary["failed"], summary["missing"], summary["duplicated"]) == (0, 0, 0)
    assert 0 < summary["produce_latency_ms"]["p50"] <= summary["produce_latency_ms"]["max"]
    assert summary["end_to_end_latency_ms"]["p99"] > 0
    assert "delivered" in done.stderr  # a line each second, as nobody looks at a terminal
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    topics = admin.list_topics(timeout=WITHIN_S).topics
    assert [len(topics[name].partitions) for name in (topic, other)] == [4, 4]
    admin.delete_topics([topic, other])


def test_records_of_others_are_not_counted(
    run_load: Callable[..., subprocess.CompletedProcess[str]], kafka_c1: KafkaCluster, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka_c1.bootstrap})
    for _ in range(50):
        producer.produce(topic, b"old" * 20)
    producer.flush(WITHIN_S)
    done = run_load(topic, "--rate", "100", "--duration", "1", "-o", "json")
    summary = json.loads(done.stdout)
    assert 0 < summary["received"] == summary["delivered"] <= 100
    AdminClient({"bootstrap.servers": kafka_c1.bootstrap}).delete_topics([topic])


def test_without_consumers_it_only_produces(
    run_load: Callable[..., subprocess.CompletedProcess[str]], kafka_c1: KafkaCluster, topic: str
) -> None:
    done = run_load(topic, "--rate", "100", "--duration", "1", "--consumers", "0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("topics           " + topic)
    assert "received" not in done.stdout
    AdminClient({"bootstrap.servers": kafka_c1.bootstrap}).delete_topics([topic])
