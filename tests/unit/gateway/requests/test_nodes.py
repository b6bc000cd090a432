"""Which nodes a client sees, and where: stable ids, one address or one for each, rules that overrule."""

from __future__ import annotations

import pytest

from mesh.routing import ExactName, ForwardingRule, NodeView, RoutingTable, RuleVersion, Subject, UpstreamCluster
from services.gateway.requests.nodes import (
    _BY_NODE_ID,
    Advertised,
    Node,
    NodePorts,
    keeps_connections_by_node_id,
    nodes_for,
)

ONE_PORT = Advertised("mesh", 9092)
PORTS = Advertised("mesh", 9092, NodePorts(9100, 9109))
HOSTS = Advertised("{node}.kafka.example.com", 9093)
JAVA, UNKNOWN = ("apache-kafka-java", "4.3.1"), ("", "")


def table(*ordinals: int, rules: tuple[ForwardingRule, ...] = (), revision: int = 1) -> RoutingTable:
    clusters = [UpstreamCluster(f"c{ordinal}", (f"c{ordinal}:9092",), ordinal) for ordinal in ordinals]
    return RoutingTable(revision, clusters, [RuleVersion(rule, n, 1) for n, rule in enumerate(rules)])


def view(name: str, node_view: NodeView) -> ForwardingRule:
    return ForwardingRule("r", ExactName(name, Subject.CLIENT_SOFTWARE), "", node_view=node_view)


@pytest.mark.parametrize(
    ("name", "version", "by_node_id"),
    [
        ("apache-kafka-java", "2.4.0", True),
        ("Apache-Kafka-Java", "unknown", True),
        ("librdkafka", "2.9.0", False),
        ("librdkafka", "2.10.0", True),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", True),
        ("kgo", "v1.22.2", True),
        ("kgo", "unknown", True),
        ("sarama", "dev", True),
        ("", "", False),
        ("something", "9", False),
    ],
)
def test_who_keeps_connections_by_node_id(name: str, version: str, by_node_id: bool) -> None:
    assert keeps_connections_by_node_id(name, version) is by_node_id


def test_a_client_that_keeps_connections_by_node_id_sees_a_node_for_each_cluster() -> None:
    nodes = nodes_for(table(1, 2), ONE_PORT, *JAVA)
    assert nodes.all == (Node(101, "mesh", 9092), Node(102, "mesh", 9092))


def test_every_other_client_sees_one_node() -> None:
    nodes = nodes_for(table(1, 2), ONE_PORT, *UNKNOWN)
    assert nodes.all == (Node(101, "mesh", 9092),)
    assert nodes.of_cluster("c2") == 101


@pytest.mark.parametrize("advertised", [ONE_PORT, PORTS, HOSTS])
@pytest.mark.parametrize("software", [*_BY_NODE_ID, "something else"])
@pytest.mark.parametrize("clusters", [(), (1,), (2, 1), (3, 7, 5)])
def test_the_coordinator_is_a_node_that_the_client_knows_from_any_connection(
    clusters: tuple[int, ...], software: str, advertised: Advertised
) -> None:
    """kafka-python 2.2 says what it is on its first connection alone: the others are shown a single node."""
    known = nodes_for(table(*clusters), advertised, software, "999.0")
    on_a_silent_connection = nodes_for(table(*clusters), advertised, *UNKNOWN)
    for here, elsewhere in ((known, on_a_silent_connection), (on_a_silent_connection, known)):
        assert here.controller in {node.node_id for node in elsewhere.all}


def test_a_rule_overrules_what_is_known_of_the_software() -> None:
    rules = (view("apache-kafka-java/4.3.1", NodeView.SINGLE), view("/", NodeView.PER_CLUSTER))
    assert len(nodes_for(table(1, 2, rules=rules), ONE_PORT, *JAVA).all) == 1
    assert len(nodes_for(table(1, 2, rules=rules), ONE_PORT, *UNKNOWN).all) == 2
    assert len(nodes_for(table(1, 2, rules=rules), ONE_PORT, "apache-kafka-java", "3.9.0").all) == 2


def test_node_ids_do_not_change_when_clusters_leave_or_rules_change() -> None:
    before = nodes_for(table(1, 2, 3), PORTS, *JAVA)
    after = nodes_for(table(1, 3, 7, rules=(view("x/1", NodeView.SINGLE),), revision=9), PORTS, *JAVA)
    assert (before.of_cluster("c3"), after.of_cluster("c3")) == (103, 103)
    assert {node for node in before.all if node.node_id == 103} <= set(after.all)


def test_with_a_port_for_each_node_every_client_sees_them_all() -> None:
    nodes = nodes_for(table(1, 2), PORTS, *UNKNOWN)
    assert nodes.all == (Node(101, "mesh", 9101), Node(102, "mesh", 9102))


def test_a_node_beyond_the_range_is_found_at_the_shared_port() -> None:
    assert nodes_for(table(1, 12), PORTS, *UNKNOWN).all[1] == Node(112, "mesh", 9092)


def test_ports_that_are_named_one_by_one() -> None:
    ports = NodePorts(named=((101, 7001), (102, 7005)))
    assert nodes_for(table(1, 2, 3), Advertised("mesh", 9092, ports), *UNKNOWN).all == (
        Node(101, "mesh", 7001),
        Node(102, "mesh", 7005),
        Node(103, "mesh", 9092),
    )
    assert ports.by_port == {7001: 101, 7005: 102}
    assert NodePorts(9100, 9102).by_port == {9100: 100, 9101: 101, 9102: 102}


def test_with_a_host_for_each_node_every_client_sees_them_all() -> None:
    nodes = nodes_for(table(1, 2), HOSTS, *UNKNOWN)
    assert nodes.all == (Node(101, "101.kafka.example.com", 9093), Node(102, "102.kafka.example.com", 9093))
    rules = (view("/", NodeView.SINGLE),)
    assert nodes_for(table(1, rules=rules), HOSTS, *UNKNOWN).all[0].host == "bootstrap.kafka.example.com"


@pytest.mark.parametrize(
    ("host", "node"),
    [
        ("101.kafka.example.com", 101),
        ("101.KAFKA.example.com", 101),
        ("bootstrap.kafka.example.com", None),
        ("101.kafkaXexample.com", None),
        ("101.kafka.example.com.evil.org", None),
    ],
)
def test_a_host_tells_which_node_is_meant(host: str, node: int | None) -> None:
    assert HOSTS.node_at(host) == node
    assert ONE_PORT.node_at(host) is None


def test_the_clusters_of_the_node_that_is_meant() -> None:
    nodes = nodes_for(table(1, 2), PORTS, *JAVA)
    assert nodes.clusters_of(102) == ("c2",)
    assert nodes.clusters_of(None) == nodes.clusters_of(155) == ("c1", "c2")
