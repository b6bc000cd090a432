"""What clients tell of themselves without being configured for it stands at /metrics of the gateway."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client import REGISTRY
from prometheus_client.samples import Sample

from tests.clients import maven
from tests.clients.console.driver import KAFKA_VERSION, PROJECT, Tool
from tests.clients.java.driver import JVM_OPTIONS
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.collector import collector
from tests.fixtures.toolchains import need
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.running import Rules

INTERVAL_S = 1
WITHIN_S = 90.0
STOP_S = 60.0


def told_by(client_id: str, family: str = "") -> list[Sample]:
    """What this client has told of itself."""
    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    return [
        sample
        for sample in samples
        if sample.name.startswith(f"kafka_mesh_client_{family}") and sample.labels["client_id"] == client_id
    ]


def test_librdkafka_tells_of_itself(
    kafka_c1: KafkaCluster,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
) -> None:
    apples, client_id = unique_name("apples"), unique_name("seller")
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]), telemetry_interval_s=INTERVAL_S)
    producer = Producer({"bootstrap.servers": gateway.address, "client.id": client_id})

    def told() -> list[Sample]:
        producer.produce(apples, b"ripe")
        producer.poll(0.1)
        return told_by(client_id)

    samples = wait_until(told, "the producer tells of itself", WITHIN_S)  # three intervals later they may be gone
    producer.flush(STOP_S)
    assert {sample.labels["software"] for sample in samples} == {"confluent-kafka-python"}
    assert all(sample.value >= 0 for sample in samples)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_what_clients_tell_goes_on_to_a_collector_with_who_has_told_it(
    kafka_c1: KafkaCluster,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    protocol: str,
) -> None:
    apples, client_id = unique_name("apples"), unique_name("seller")
    create_topic(kafka_c1, apples)
    with collector(tmp_path) as receiver:
        endpoint = receiver.grpc if protocol == "grpc" else receiver.http
        gateway = start_gateway(
            rules.to("c1", [apples]),
            telemetry_interval_s=INTERVAL_S,
            telemetry_forwarded=True,
            tracing_endpoint=endpoint,
            tracing_protocol=protocol,
        )
        producer = Producer({"bootstrap.servers": gateway.address, "client.id": client_id})

        def told() -> set[str]:
            producer.produce(apples, b"ripe")
            producer.poll(0.1)
            return {
                metric["name"]
                for told in receiver.resource_metrics()
                if {"key": "messaging.client.id", "value": {"stringValue": client_id}} in told["resource"]["attributes"]
                for scope in told["scopeMetrics"]
                for metric in scope["metrics"]
            }

        names = wait_until(told, "the collector has the producer's metrics", WITHIN_S)
        producer.flush(STOP_S)
    assert any(name.startswith("org.apache.kafka.producer.") for name in names), names


@pytest.fixture
def java_producer() -> Iterator[Callable[..., None]]:
    """Kafka's own producer, slowly sending to a topic until the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start(bootstrap: str, topic: str, client_id: str) -> None:
        (java,) = need("java")
        command = [str(java), *JVM_OPTIONS, "-cp", maven.class_path(PROJECT, KAFKA_VERSION), Tool.PRODUCER_PERF_TEST]
        how = ["--num-records", "100000", "--record-size", "10", "--throughput", "20"]
        how += ["--bootstrap-server", bootstrap, "--topic", topic, "--command-property", f"client.id={client_id}"]
        started.append(subprocess.Popen([*command, *how], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    yield start
    for process in started:
        process.terminate()
        process.wait(STOP_S)


def test_java_tells_of_itself(
    kafka_c1: KafkaCluster,
    rules: Rules,
    start_gateway: StartGateway,
    create_topic: CreateTopic,
    unique_name: Callable[[str], str],
    java_producer: Callable[..., None],
) -> None:
    apples, client_id = unique_name("apples"), unique_name("seller")
    create_topic(kafka_c1, apples)
    gateway = start_gateway(rules.to("c1", [apples]), telemetry_interval_s=INTERVAL_S)
    java_producer(gateway.address, apples, client_id)

    def more_than(records: float) -> list[Sample] | None:
        told = told_by(client_id, "producer_record_send_total")
        return told if sum(sample.value for sample in told) > records else None

    first = wait_until(lambda: more_than(20), "the producer tells how many records it has sent", WITHIN_S)
    last = wait_until(lambda: more_than(sum(sample.value for sample in first)), "and goes on telling", WITHIN_S)
    assert {sample.labels["software"] for sample in first + last} == {"apache-kafka-java"}
