"""Nodes with a port or a host of their own, inside and outside: real clients find them, and reach what they mean."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Producer
from kafka import KafkaAdminClient

from mesh.routing import ForwardingRule, NamePrefix, NodeView, Subject
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from tests.clients import maven
from tests.clients.console.driver import KAFKA_VERSION, PROJECT, ConsoleTools, Tool
from tests.clients.java.driver import JVM_OPTIONS
from tests.clients.topic_under_load import TopicUnderLoad
from tests.clients.upstream import Upstream
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.ports import free_block
from tests.fixtures.toolchains import need
from tests.integration.gateway.conftest import CreateTopic, StartGateway
from tests.integration.gateway.records import produce, read_all
from tests.integration.gateway.running import Rules
from tests.integration.gateway.talking import talking_to

VALUES = [f"value {n}" for n in range(20)]
DOMAIN = "kafka.example.com"
ANSWER_S = 60.0


@pytest.fixture
def topics(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, create_topic: CreateTopic, unique_name: Callable[[str], str]
) -> tuple[str, str]:
    """One on c1, one on c2."""
    apples, bananas = unique_name("apples"), unique_name("bananas")
    create_topic(kafka_c1, apples)
    create_topic(kafka_c2, bananas)
    return apples, bananas


def places(bootstrap: str, **config: Any) -> dict[int, str]:
    """The nodes that librdkafka is shown."""
    metadata = Producer({"bootstrap.servers": bootstrap, **config}).list_topics(timeout=ANSWER_S)
    return {node.id: f"{node.host}:{node.port}" for node in metadata.brokers.values()}


def clusters_with_log_dirs(admin: Any, node: int) -> set[str]:
    """Whose directories a node shows; each is named `cluster/broker:path`."""
    (answered,) = admin.describe_log_dirs(brokers=[node])
    return {found["log_dir"].partition("/")[0] for found in answered["log_dirs"]}


def test_a_port_for_each_node(
    rules: Rules, topics: tuple[str, str], start_gateway: StartGateway, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster
) -> None:
    apples, bananas = topics
    rules.to("c1", [apples])
    first = free_block(4)
    shared = f"127.0.0.1:{first}"
    start_gateway(rules.to("c2", [bananas]), listen=shared, node_ports=(f"{first + 1}-{first + 3}",))
    nodes = {101: f"127.0.0.1:{first + 2}", 102: f"127.0.0.1:{first + 3}"}
    for bootstrap in (shared, *nodes.values()):
        assert places(bootstrap) == nodes
    for topic, cluster in ((apples, kafka_c1), (bananas, kafka_c2)):
        produce(nodes[101], topic, VALUES)
        assert sorted(read_all(cluster.bootstrap, topic)) == sorted(VALUES)
        assert sorted(read_all(nodes[102], topic)) == sorted(VALUES)
    admin = KafkaAdminClient(bootstrap_servers=shared)
    assert clusters_with_log_dirs(admin, 101) == {"c1"}
    assert clusters_with_log_dirs(admin, 102) == {"c2"}
    admin.close()


async def greeted(port: int, node: int, cluster_id: str = "kafka-mesh") -> int:
    """The error that a client hears which means to reach this node there (KIP-1242)."""
    async with talking_to(f"127.0.0.1:{port}") as client:
        return (await client.ask(ApiVersionsRequest("test", "1", cluster_id, node), 5, ApiVersionsResponse)).error_code


@pytest.mark.parametrize("client", ["java-4.4", pytest.param("confluent", marks=pytest.mark.soak)])
async def test_nodes_that_exchange_their_addresses_cost_running_clients_no_record(
    client: str,
    rules: Rules,
    topics: tuple[str, str],
    start_gateway: StartGateway,
    kafka_c2: KafkaCluster,
    group: str,
) -> None:
    """Java says whom it means to reach, is told that it has not, and begins again at its bootstrap address. librdkafka
    does not say it, and so does not hear that code, after which it keeps leaders that are no more."""
    table = rules.to("c2", topics[1:])
    shared, one, other = range(first := free_block(3), first + 3)
    place = f"127.0.0.1:{shared}"
    gateway = start_gateway(table, listen=place, node_ports=(f"101={one} 102={other}",))
    assert [await greeted(one, 101), await greeted(other, 102), await greeted(shared, 102)] == [0, 0, 0]
    load = await TopicUnderLoad.start_of(place, topics[1], group, [client])
    try:
        load.expect_lost_connections()
        await asyncio.to_thread(gateway.close)
        await asyncio.to_thread(start_gateway, table, listen=place, node_ports=(f"101={other} 102={one}",))
        wrong = [await greeted(one, 101), await greeted(other, 102), await greeted(shared, 101, "another-cluster")]
        assert wrong == [ErrorCode.REBOOTSTRAP_REQUIRED] * 3
        await load.progress()
        await load.check([Upstream("c2", kafka_c2.bootstrap)])
    finally:
        await load.stop()


def test_the_quorum_of_a_node_is_told_with_numbers_that_tell_its_cluster(
    rules: Rules, topics: tuple[str, str], start_gateway: StartGateway
) -> None:
    """By Kafka's own tool, which chooses the node."""
    first = free_block(3)
    gateway = start_gateway(rules.to("c1", topics[:1]), node_ports=(f"101={first} 102={first + 1}",))
    printed = asyncio.run(ConsoleTools(gateway.address).run(Tool.METADATA_QUORUM, "describe", "--status"))
    assert re.search(r"LeaderId:\s+(1000001|2000001)\b", printed), printed


async def test_a_host_for_each_node_on_one_tls_port(
    rules: Rules,
    topics: tuple[str, str],
    start_gateway: StartGateway,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apples, bananas = topics
    rules.to("c1", [apples])
    authority = Authority(tmp_path / "tls")
    signed = authority.sign("gateway", host=f"DNS:*.{DOMAIN}")
    port = free_block(1)
    start_gateway(
        rules.to("c2", [bananas]),
        listen=f"tls://127.0.0.1:{port}",
        advertised=(f"{{node}}.{DOMAIN}:{port}",),
        tls_certificate=signed.certificate,
        tls_key=signed.key,
    )
    leads_here(monkeypatch)
    bootstrap = f"bootstrap.{DOMAIN}:{port}"
    context = create_ssl_context(cafile=str(authority.certificate))
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, security_protocol="SSL", ssl_context=context) as producer:
        for topic in topics:
            for value in VALUES:
                await producer.send_and_wait(topic, value.encode())
        assert {node.host for node in producer.client.cluster.brokers()} == {f"101.{DOMAIN}", f"102.{DOMAIN}"}
    assert sorted(read_all(kafka_c1.bootstrap, apples)) == sorted(VALUES)
    assert sorted(read_all(kafka_c2.bootstrap, bananas)) == sorted(VALUES)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, security_protocol="SSL", ssl_context=context)
    assert clusters_with_log_dirs(admin, 102) == {"c2"}
    admin.close()


def test_java_finds_the_host_of_each_node(
    rules: Rules, topics: tuple[str, str], start_gateway: StartGateway, kafka_c2: KafkaCluster, tmp_path: Path
) -> None:
    rules.to("c1", topics[:1])
    authority = Authority(tmp_path / "tls")
    signed = authority.sign("gateway", host=f"DNS:*.{DOMAIN}")
    port = free_block(1)
    start_gateway(
        rules.to("c2", topics[1:]),
        listen=f"tls://127.0.0.1:{port}",
        advertised=(f"{{node}}.{DOMAIN}:{port}",),
        tls_certificate=signed.certificate,
        tls_key=signed.key,
    )
    hosts, config = tmp_path / "hosts", tmp_path / "client.properties"
    hosts.write_text("".join(f"127.0.0.1 {label}.{DOMAIN}\n" for label in ("bootstrap", "101", "102")))
    trusted = {"type": "PEM", "location": authority.certificate}
    security = [f"ssl.truststore.{name}={value}\n" for name, value in trusted.items()]
    config.write_text("".join(["security.protocol=SSL\n", *security]))
    jvm = [str(need("java")[0]), *JVM_OPTIONS, f"-Djdk.net.hosts.file={hosts}"]
    tool = ["-cp", maven.class_path(PROJECT, KAFKA_VERSION), Tool.PRODUCER_PERF_TEST, "--command-config", str(config)]
    what = ["--topic", topics[1], "--num-records", "20", "--record-size", "10", "--throughput", "-1"]
    command = [*jvm, *tool, "--bootstrap-server", f"bootstrap.{DOMAIN}:{port}", *what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read_all(kafka_c2.bootstrap, topics[1])) == 20


def leads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a DNS that leads all names of the domain to this machine."""
    look_up = socket.getaddrinfo

    def answer(host: Any, *rest: Any, **more: Any) -> Any:
        return look_up("127.0.0.1" if str(host).endswith(DOMAIN) else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def test_clients_inside_and_outside_are_told_different_addresses(
    rules: Rules, topics: tuple[str, str], start_gateway: StartGateway, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "tls")
    signed, client = authority.sign("gateway"), authority.sign("client")
    inside, outside = free_block(1), free_block(1)
    gateway = start_gateway(
        rules.to("c1", topics[:1]),
        listen=f"127.0.0.1:{inside},tls://127.0.0.1:{outside}",
        advertised=(f"localhost:{inside}", f"127.0.0.1:{outside}"),
        tls_certificate=signed.certificate,
        tls_key=signed.key,
        tls_client_ca=authority.certificate,
    )
    assert gateway.gateway.port == inside
    mutual = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.certificate.location": str(client.certificate),
        "ssl.key.location": str(client.key),
    }
    assert set(places(f"127.0.0.1:{inside}").values()) == {f"localhost:{inside}"}
    assert set(places(f"127.0.0.1:{outside}", **mutual).values()) == {f"127.0.0.1:{outside}"}


def test_a_rule_about_client_software_decides_which_nodes_it_sees(
    rules: Rules, topics: tuple[str, str], start_gateway: StartGateway
) -> None:
    rules.to("c1", topics[:1])
    software = NamePrefix("confluent-kafka-python/", Subject.CLIENT_SOFTWARE)
    gateway = start_gateway(rules.put(ForwardingRule("one-node", software, "", node_view=NodeView.SINGLE)))
    assert places(gateway.address) == {101: gateway.address}
    produce(gateway.address, topics[0], VALUES)
    assert sorted(read_all(gateway.address, topics[0])) == sorted(VALUES)
