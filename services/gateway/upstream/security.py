"""How a connection to an upstream cluster is secured: from the cluster's librdkafka properties to what we can do.

This gateway speaks PLAINTEXT to clusters. A cluster that asks for more is refused when its table arrives, with the
reason, rather than at the first request of a client.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.routing import RoutingTable, UpstreamCluster

SERVED_PROTOCOLS = frozenset({"plaintext"})


@dataclass(frozen=True, slots=True)
class UnservedSecurityError(Exception):
    """A cluster asks for a security protocol that this gateway lacks."""

    cluster: str
    protocol: str

    def __str__(self) -> str:
        return (
            f"cluster {self.cluster!r}: security.protocol {self.protocol!r} is not served by this gateway "
            f"(served: {', '.join(sorted(SERVED_PROTOCOLS))})"
        )


def security_protocol(cluster: UpstreamCluster) -> str:
    """As configured for producers, else for consumers, else librdkafka's default."""
    for config in (cluster.producer_config, cluster.consumer_config):
        protocol = _property(config, "security.protocol")
        if protocol:
            return protocol.lower()
    return "plaintext"


def _property(config: Mapping[str, str], name: str) -> str:
    return config.get(name, "").strip()


def check(table: RoutingTable) -> None:
    """Raises UnservedSecurityError for the first cluster of the table that can't be connected to."""
    for cluster in table.clusters.values():
        protocol = security_protocol(cluster)
        if protocol not in SERVED_PROTOCOLS:
            raise UnservedSecurityError(cluster.name, protocol)
