"""Asks a Kafka cluster for its id, brokers and controller, and for none of its topics. Blocks, within a bound.

`AdminClient.describe_cluster` ends the process by an assertion (`rd_kafka_admin_response_parse` of librdkafka 2.16),
if a broker answers without any broker. A broker that stood still for longer than its session answers so as it wakes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka.admin import AdminClient

NO_TOPIC: Final = "no topic has this name"
"""Kafka allows no spaces in a name. So a broker neither has nor makes this topic, and describes its cluster with it."""


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """A cluster as one of its brokers sees it."""

    cluster_id: str | None
    controller_id: int
    """-1 if it is not known."""
    brokers: Mapping[int, tuple[str, int]]
    """Host and port by broker id; empty if the cluster has no broker that can be used now."""


def cluster_nodes(client: AdminClient, timeout_s: float) -> ClusterNodes:
    """Asks any broker; KafkaException if none answers in time."""
    found: Any = client.list_topics(NO_TOPIC, timeout=timeout_s)
    brokers = {number: (broker.host, broker.port) for number, broker in sorted(found.brokers.items())}
    return ClusterNodes(found.cluster_id, found.controller_id, brokers)
