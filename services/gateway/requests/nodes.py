"""The brokers that clients are shown: one or several node ids, on one address or on one for each.

Policy
1. A client that keeps its connections by node id is shown one node for each upstream cluster, all on the advertised
   address. The client opens a connection for each node, so a slow cluster delays only its own topics.
2. Every other client is shown a single node. librdkafka before 2.10 takes brokers of one address for one broker, and
   changes the broker's label for ever.
3. The gateway tells the two kinds apart by the software name and version in ApiVersions. A rule about client software
   overrules this. If each node has a port or a host of its own, every client is shown all nodes.
4. A client may not name its software on some of its connections: kafka-python 2.2 sends ApiVersions on its first
   connection alone. Such a client may use both views, so the single node has the id of the first cluster's node. That
   node is the controller and every coordinator in both ways, and every client knows it.
5. A node id is 100 plus the ordinal of the cluster. A cluster keeps its ordinal for life.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mesh.routing import FIRST_CLUSTER_NODE_ID, NodeView, RoutingTable

NODE_OF_AN_EMPTY_MESH = 101
"""The single node while no cluster is registered: the node of the cluster that is registered first."""
NODE_PLACEHOLDER: Final = "{node}"
"""The place in an advertised host for the node's id."""
SHARED_LABEL: Final = "bootstrap"
"""The label in that place if no particular node is meant."""

_ANY = (0,)
_BY_NODE_ID: Mapping[str, tuple[int, ...]] = {
    "apache-kafka-java": _ANY,  # also Kafka Streams, Connect and MirrorMaker 2, which use it
    "librdkafka": (2, 10),
    "confluent-kafka-python": (2, 10),
    "confluent-kafka-go": (2, 10),
    "confluent-kafka-dotnet": (2, 10),
    "confluent-kafka-javascript": (1, 3),
    "kafka-python": (2, 1),
    "kgo": _ANY,  # franz-go
    "sarama": _ANY,
}
"""Client software -> first version known to keep connections by node id. Clients that keep connections by node id but
never name their software: kafka-go of segmentio, KafkaJS, aiokafka."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """A port for each node: a range in the order of node ids, or ports that are named one by one."""

    first: int = 0
    last: int = 0
    """The last port of the range; the first port belongs to node 100."""
    named: tuple[tuple[int, int], ...] = ()
    """Pairs of node id and port."""

    def of(self, node_id: int) -> int | None:
        port = self.first + node_id - FIRST_CLUSTER_NODE_ID
        return port if self.first and self.first <= port <= self.last else dict(self.named).get(node_id)

    @property
    def by_port(self) -> dict[int, int]:
        """Port -> the node that it belongs to."""
        in_range = range(self.first, self.last + 1) if self.first else ()
        return {port: FIRST_CLUSTER_NODE_ID + n for n, port in enumerate(in_range)} | {p: n for n, p in self.named}


@dataclass(frozen=True, slots=True)
class Advertised:
    """The address where clients reach the gateway."""

    host: str
    """The host; with `{node}` for a host of each node's own."""
    port: int
    node_ports: NodePorts = NodePorts()

    @property
    def tells_nodes_apart(self) -> bool:
        return NODE_PLACEHOLDER in self.host or self.node_ports != NodePorts()

    def node(self, node_id: int) -> "Node":
        """The node with its address. A node without a port of its own has the shared port."""
        host = self.host.replace(NODE_PLACEHOLDER, str(node_id))
        return Node(node_id, host, self.node_ports.of(node_id) or self.port)

    def single_node(self, node_id: int) -> "Node":
        """The node that stands for all clusters: its address belongs to no cluster."""
        return Node(node_id, self.host.replace(NODE_PLACEHOLDER, SHARED_LABEL), self.port)

    def node_at(self, host: str) -> int | None:
        """The node of this host; None for a host that belongs to no node."""
        if NODE_PLACEHOLDER not in self.host:
            return None
        pattern = re.escape(self.host).replace(re.escape(NODE_PLACEHOLDER), r"(\d{1,9})")
        found = re.fullmatch(pattern, host, re.IGNORECASE)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Node:
    node_id: int
    host: str
    port: int


@lru_cache(maxsize=1024)
def keeps_connections_by_node_id(software_name: str, software_version: str) -> bool:
    since = _BY_NODE_ID.get(software_name.lower())
    if since is None:
        return False
    return tuple(int(part) for part in re.findall(r"\d+", software_version)[: len(since)]) >= since or since == _ANY


@dataclass(frozen=True, slots=True)
class VirtualNodes:
    """The nodes of one client under one routing table."""

    all: tuple[Node, ...]
    """Never empty: a mesh without clusters shows the single node. The first cluster's node comes first."""
    by_cluster: Mapping[str, int]

    @property
    def controller(self) -> int:
        """Admin requests may go to any node; every client knows this one."""
        return self.all[0].node_id

    def of_cluster(self, cluster: str) -> int:
        """The node that stands for a cluster."""
        return self.by_cluster.get(cluster, self.controller)

    def clusters_of(self, node_id: int | None) -> tuple[str, ...]:
        """The clusters that a node stands for; all clusters if the client's node is unknown."""
        meant = tuple(cluster for cluster, node in self.by_cluster.items() if node == node_id)
        return meant or tuple(self.by_cluster)


def virtual_nodes(table: RoutingTable, advertised: Advertised, *, by_node_id: bool) -> VirtualNodes:
    """The nodes to show: one for each cluster if the client keeps connections by node id, else one for all."""
    clusters = sorted(table.clusters.values(), key=lambda cluster: cluster.ordinal)
    ids = {cluster.name: FIRST_CLUSTER_NODE_ID + cluster.ordinal for cluster in clusters}
    if by_node_id and ids:
        return VirtualNodes(tuple(advertised.node(node_id) for node_id in ids.values()), ids)
    first = next(iter(ids.values()), NODE_OF_AN_EMPTY_MESH)
    return VirtualNodes((advertised.single_node(first),), dict.fromkeys(ids, first))


def nodes_for(table: RoutingTable, advertised: Advertised, software_name: str, software_version: str) -> VirtualNodes:
    """The nodes to show to a client of this software, which has connected to a listener of this address."""
    rule = table.client_rule(software_name, software_version)
    match NodeView.BY_SOFTWARE if rule is None else rule.node_view:
        case NodeView.SINGLE:
            by_node_id = False
        case NodeView.PER_CLUSTER:
            by_node_id = True
        case _:
            known = keeps_connections_by_node_id(software_name, software_version)
            by_node_id = advertised.tells_nodes_apart or known
    return virtual_nodes(table, advertised, by_node_id=by_node_id)
