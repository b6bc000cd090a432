"""The brokers that clients are shown: one address, one or several node ids.

Policy. A client that keeps its connections by node id is shown one node for each upstream cluster, all on the
advertised address: it opens a connection for each, and a slow cluster delays only its own topics. Everyone else is
shown a single node, because librdkafka before 2.10 took brokers of one address for one broker and changed its label
for ever. The choice follows from what the client says of itself in ApiVersions, so all its connections agree.
Node ids derive from the ordinal that a cluster keeps for life, never from how many clusters there are.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from mesh.routing import RoutingTable

SINGLE_NODE_ID = 99
FIRST_CLUSTER_NODE_ID = 100

_ANY = (0,)
_BY_NODE_ID: Mapping[str, tuple[int, ...]] = {
    "apache-kafka-java": _ANY,
    "librdkafka": (2, 10),
    "confluent-kafka-python": (2, 10),
    "confluent-kafka-go": (2, 10),
    "confluent-kafka-dotnet": (2, 10),
    "confluent-kafka-javascript": (1, 3),
    "kafka-python": (2, 1),
}
"""Client software -> first version known to keep connections by node id."""


@dataclass(frozen=True, slots=True)
class Advertised:
    """Where clients reach the gateway."""

    host: str
    port: int


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
    """Never empty: a mesh without clusters shows the single node."""
    by_cluster: Mapping[str, int]

    @property
    def controller(self) -> int:
        """Admin requests may go to any node; this one is always there."""
        return self.all[0].node_id

    def of_cluster(self, cluster: str) -> int:
        """The node that stands for a cluster."""
        return self.by_cluster.get(cluster, self.controller)


def virtual_nodes(table: RoutingTable, advertised: Advertised, *, by_node_id: bool) -> VirtualNodes:
    """The nodes to show: one for each cluster if the client keeps connections by node id, else one for all."""
    host, port = advertised.host, advertised.port
    if not by_node_id or not table.clusters:
        return VirtualNodes((Node(SINGLE_NODE_ID, host, port),), dict.fromkeys(table.clusters, SINGLE_NODE_ID))
    ids = {cluster.name: FIRST_CLUSTER_NODE_ID + cluster.ordinal for cluster in table.clusters.values()}
    return VirtualNodes(tuple(Node(node_id, host, port) for node_id in ids.values()), ids)
