"""The upstream clusters of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.routing.identity import UpstreamIdentity

FIRST_CLUSTER_NODE_ID = 100
"""A gateway shows a cluster as the node of this id plus the cluster's ordinal."""


@dataclass(frozen=True, slots=True)
class UpstreamCluster:
    """A real Kafka cluster behind the mesh; see ClusterSpec and UpstreamCluster in routing.proto for the fields."""

    name: str
    bootstrap_servers: tuple[str, ...]
    ordinal: int
    partition_count: int = 0
    producer_config: Mapping[str, str] = field(default_factory=dict)
    consumer_config: Mapping[str, str] = field(default_factory=dict)
    kafka_cluster_id: str = ""
    home: bool = False
    identity: UpstreamIdentity | None = None
    """None: the cluster's own properties, for all clients."""
