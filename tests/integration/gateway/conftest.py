"""What the gateway's integration tests share: two real clusters, topics on them, gateways of their own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mesh.routing import RoutingTable
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.sweeps import mostly
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import JavaTransactions, LibrdkafkaTransacting, Open

StartGateway = Callable[..., RunningGateway]
CreateTopic = Callable[..., None]
DeleteTopic = Callable[[KafkaCluster, str], None]


@pytest.fixture
def rules(kafka_c1: KafkaCluster, kafka_c2: KafkaCluster) -> Rules:
    return Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    started: list[RunningGateway] = []

    def start(table: RoutingTable | None, **settings: object) -> RunningGateway:
        started.append(RunningGateway(tmp_path / "gateway", table, **settings))
        return started[-1]

    yield start
    for gateway in started:
        gateway.close()


@pytest.fixture
def create_topic() -> Iterator[CreateTopic]:
    """Create a topic on a real cluster, with leaders that take records; it is deleted in the end."""
    created: list[tuple[AdminClient, str]] = []

    def create(cluster: KafkaCluster, name: str, partitions: int = 3) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        created.append((admin, name))
        await_leaders(admin, name, partitions)

    yield create
    for admin, name in created:
        admin.delete_topics([name])[name].result(30)


@pytest.fixture
def delete_topic(request: pytest.FixtureRequest) -> DeleteTopic:
    """Delete a topic that the mesh makes on a real cluster, when the test is over."""

    def later(cluster: KafkaCluster, name: str) -> None:
        def delete() -> None:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.delete_topics([name])[name].result(30)

        request.addfinalizer(delete)

    return later


@pytest.fixture(scope="module")
def jvm() -> Iterator[JavaTransactions]:
    program = JavaTransactions()
    yield program
    program.close()


@pytest.fixture(params=mostly(["librdkafka"], ["java"]))
def open_producer(request: pytest.FixtureRequest) -> Open:
    if request.param == "librdkafka":
        return LibrdkafkaTransacting
    java: JavaTransactions = request.getfixturevalue("jvm")
    return java.open
