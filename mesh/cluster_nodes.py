"""Asks a Kafka cluster for its id, brokers and controller, and for none of its topics. Blocks, within a bound.

`AdminClient.describe_cluster` ends the process by an assertion (`rd_kafka_admin_response_parse` of librdkafka 2.16),
if a broker answers without any broker. A broker that stood still for longer than its session answers so as it wakes.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import AdminClient, ClusterMetadata

NO_TOPIC: Final = "no topic has this name"
"""Kafka allows no spaces in a name. So a broker neither has nor makes this topic, and describes its cluster with it."""


def cluster_nodes(client: AdminClient, timeout_s: float) -> ClusterMetadata:
    """The cluster as one of its brokers sees it; KafkaException if none answers in time.

    The answer has no brokers if the cluster has none that can be used now.
    """
    return client.list_topics(NO_TOPIC, timeout=timeout_s)
