"""The Envoy filter's own YAML, by README's own command, on the mesh of `make run` and one cluster more: three prefixes
to three real clusters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined] # at run time it does

from local.layout import STATE_FOLDER
from tests.clients.upstream import Upstream
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.meshes import Mesh, running_mesh
from tests.fixtures.pages import command, paste

pytestmark = pytest.mark.timeout(240)

NAMES = {"kafka_c1": "c1", "kafka_c2": "c2", "kafka_c3": "kafka_c3"}  # the file's, and the mesh's for the same cluster
CLUSTERS = tuple(NAMES.values())
HOMES = {"apples": "c1", "bananas": "c2", "cherries": "kafka_c3"}
PARTITIONS = {"apples": 1, "bananas": 1, "cherries": 5}  # partition_count of each one's cluster
CLUSTERS_OWN_DEFAULT = -1
ADMIN_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Orchard:
    """The mesh to which README's line was applied, once."""

    mesh: Mesh
    clusters: Mapping[str, Upstream]
    apply: str
    printed: str
    """What the first `apply` said."""

    def asked(self, *arguments: str) -> Any:
        return json.loads(self.mesh.meshctl(*arguments, "-o", "json").stdout)


@pytest.fixture(scope="module")
def applied(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchard]:
    third = KafkaCluster("c3", tmp_path_factory.mktemp("kafka") / "c3")
    try:
        third.start()
        with running_mesh(tmp_path_factory.mktemp("envoy") / STATE_FOLDER, formatted=True) as mesh:
            addresses = dict(zip(NAMES, (mesh.cluster("c1"), mesh.cluster("c2"), third.bootstrap), strict=True))
            line = command("First five minutes", ".venv/bin/meshctl apply -f examples/envoy-kafka-mesh.yaml")
            for name, address in addresses.items():
                line = line.replace(f"{name}=HOST:PORT", f"{name}={address}")
            assert "HOST:PORT" not in line
            printed = paste(line, mesh.state.parent)
            clusters = {ours: Upstream(ours, addresses[name]) for name, ours in NAMES.items()}
            yield Orchard(mesh, clusters, line, printed)
    finally:
        third.stop()


@pytest.fixture
async def topics(applied: Orchard, unique_name: Callable[[str], str]) -> AsyncIterator[dict[str, str]]:
    """A new topic of each prefix, made through the mesh by a client that leaves the partitions to it."""
    names = {prefix: unique_name(prefix) for prefix in HOMES}
    admin = AdminClient({"bootstrap.servers": applied.mesh.gateway})
    wanted = [NewTopic(name, CLUSTERS_OWN_DEFAULT, replication_factor=-1) for name in names.values()]
    for future in admin.create_topics(wanted, request_timeout=ADMIN_TIMEOUT_S).values():
        future.result(ADMIN_TIMEOUT_S)
    for prefix, name in names.items():
        await applied.clusters[HOMES[prefix]].wait_for_partitions(name, PARTITIONS[prefix])
    yield names
    for future in admin.delete_topics([*names.values()], request_timeout=ADMIN_TIMEOUT_S).values():
        future.result(ADMIN_TIMEOUT_S)


async def test_records_of_three_prefixes_lie_on_three_clusters(applied: Orchard, topics: dict[str, str]) -> None:
    for prefix, topic in topics.items():
        told = applied.mesh.kafka_mesh("produce", topic, stdin=f"one of {prefix}\ntwo of {prefix}\n").stdout
        assert "2 records" in told

    for prefix, topic in topics.items():
        stored = await applied.clusters[HOMES[prefix]].read(topic)
        assert sorted(record.value for record in stored) == [f"one of {prefix}", f"two of {prefix}"]
        for name in set(CLUSTERS) - {HOMES[prefix]}:
            await applied.clusters[name].wait_for_partitions(topic, 0)


def test_one_consumer_reads_all_three(applied: Orchard, topics: dict[str, str]) -> None:
    for prefix, topic in topics.items():
        applied.mesh.kafka_mesh("produce", topic, stdin=f"{prefix}\n")

    read = applied.mesh.kafka_mesh("consume", *topics.values(), "--count", "3").stdout

    assert sorted(read.split()) == sorted(topics)


def test_each_new_topic_has_its_clusters_partition_count(applied: Orchard, topics: dict[str, str]) -> None:
    """The fixture saw them on the clusters themselves; clients of the mesh see the same."""
    metadata = AdminClient({"bootstrap.servers": applied.mesh.gateway}).list_topics(timeout=ADMIN_TIMEOUT_S)

    assert {prefix: len(metadata.topics[topic].partitions) for prefix, topic in topics.items()} == PARTITIONS


def test_a_registered_cluster_keeps_its_name(applied: Orchard) -> None:
    address = applied.mesh.cluster("c1")

    assert f"kafka_c1: {address} is registered as c1, which is its name in this mesh" in applied.printed


def test_what_passing_traffic_does_not_feel_is_named(applied: Orchard) -> None:
    for key, why in (
        ("acks", "each client's own acks count there; it steers the mesh's own producers of kafka_c3"),
        ("linger.ms", "records pass as each client batched them; it steers the mesh's own producers of kafka_c3"),
        ("client.id", "brokers see each client's own; it steers the mesh's own consumers of kafka_c3"),
    ):
        assert f"kafka_c3 {key}: does not touch passing traffic: {why}" in applied.printed


def test_an_address_that_is_not_the_gateways_is_named(applied: Orchard) -> None:
    """The YAML's address is the default one; this mesh listens elsewhere."""
    stays = f"differs from the running gateway's, which stays: clients connect to {applied.mesh.gateway}"

    assert f"listener 127.0.0.1:19092: {stays}" in applied.printed
    assert f"advertised address 127.0.0.1:19092: {stays}" in applied.printed


def test_the_yamls_rules_are_the_whole_rule_set(applied: Orchard) -> None:
    rules = [each["spec"] for each in applied.asked("rule", "list")["rules"]]
    specs = {each["spec"]["cluster_name"]: each["spec"] for each in applied.asked("cluster", "list")["clusters"]}

    assert [(each["match"], each["target_cluster"]) for each in rules] == [
        ({"topic_prefix": prefix}, cluster) for prefix, cluster in HOMES.items()
    ]
    assert {name: spec["partition_count"] for name, spec in specs.items()} == dict(
        zip(CLUSTERS, (1, 1, 5), strict=True)
    )
    assert specs["kafka_c3"]["producer_config"] == {"acks": "1", "linger.ms": "500"}
    assert specs["kafka_c3"]["consumer_config"] == {"client.id": "my-envoy-consumer"}


def test_applying_it_twice_changes_nothing(applied: Orchard) -> None:
    before = applied.asked("status")

    again = paste(applied.apply, applied.mesh.state.parent)

    after = applied.asked("status")
    assert "nothing to change" in again
    assert (after["revision"], after["last_position"]) == (before["revision"], before["last_position"])
