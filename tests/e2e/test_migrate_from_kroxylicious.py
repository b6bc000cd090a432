"""The page "Migrate from Kroxylicious", with the real Kroxylicious and its filter for tenants in front of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from local.readiness import KafkaReady
from tests.bench.middles import running
from tests.bench.ways import KAFKA_OF_KROXYLICIOUS, KROXYLICIOUS
from tests.clients import maven
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.meshes import Mesh
from tests.fixtures.pages import ROOT, blocks, section_of, steps, take
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need

PAGE = ROOT / "docs" / "how-to" / "migrate-from-kroxylicious.md"
SECTION = section_of(PAGE, "Steps")
TOPIC, GROUP = "orders", "shop"
"""As the tenant calls them."""
NODES = 4
"""Ports behind that of the bootstrap: a range of nodes that Kroxylicious assumes has three."""
WITHIN_S = 60.0
pytestmark = pytest.mark.timeout(400)


@contextmanager
def kroxylicious(configuration: str, port: int, folder: Path) -> Iterator[str]:
    """The address for clients."""
    class_path = maven.class_path(KROXYLICIOUS, KAFKA_OF_KROXYLICIOUS)
    file = folder / "kroxylicious.yaml"
    file.write_text(configuration, encoding="ascii")
    options = ["-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path]
    command = [str(need("java")[0]), *options, "mesh.bench.Kroxylicious", str(file)]
    address = f"localhost:{port}"
    with running(command, folder / "kroxylicious.log", KafkaReady(address), {}):
        yield address


def test_a_tenant_finds_its_topic_and_its_place_through_the_mesh(
    mesh_factory: Callable[..., Mesh], kafka_c1: KafkaCluster, tmp_path: Path
) -> None:
    (configuration,) = blocks(SECTION, "yaml")
    port = free_block(NODES)
    configuration = configuration.replace("broker-1:9092", kafka_c1.bootstrap).replace("9192", str(port))
    with kroxylicious(configuration, port, tmp_path) as address:
        producer = Producer({"bootstrap.servers": address})
        for value in ("first", "second"):
            producer.produce(TOPIC, value)
        assert producer.flush(WITHIN_S) == 0
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": address, **settings})
        consumer.subscribe([TOPIC])
        (record,) = consumer.consume(1, timeout=WITHIN_S)
        assert record.value() == b"first"
        consumer.commit(message=record, asynchronous=False)
        consumer.close()
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    assert "tenant-a-orders" in admin.list_topics(timeout=WITHIN_S).topics, "as the page says"

    mesh = mesh_factory("--no-example")
    for step in steps(SECTION):
        take(step, mesh.state.parent, {"broker-1:9092": kafka_c1.bootstrap})
