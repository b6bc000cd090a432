"""The bytes that the topics of one cluster take on disk, each record counted once: the logs of the leaders.

confluent-kafka does not ask for them (DescribeLogDirs, KIP-113), so aiokafka's connections do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    Int16,
    Int32,
    Int64,
    Schema,
)

from mesh.exact_requests import Exactly
from mesh.routing import UpstreamCluster
from services.control.upstream.broker_connections import BrokerConnections
from services.control.upstream.connections import UnreachableError
from services.control.upstream.transaction_messages import NAME, TAGS

ASK_S: Final = 4.0
"""Seconds for all questions to one cluster."""


class DescribeLogDirsResponse_v3(Response):  # type: ignore[misc]  # noqa: N801  # aiokafka: no types, its names
    API_KEY = 35
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "folders",
            CompactArray(
                ("error_code", Int16),
                ("folder", NAME),
                (
                    "topics",
                    CompactArray(
                        ("topic", NAME),
                        (
                            "partitions",
                            CompactArray(
                                ("partition", Int32), ("size", Int64), ("lag", Int64), ("is_future", Boolean), TAGS
                            ),
                        ),
                        TAGS,
                    ),
                ),
                TAGS,
            ),
        ),
        TAGS,
    )


class DescribeLogDirsRequest_v3(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 35
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeLogDirsResponse_v3
    SCHEMA = Schema(("topics", CompactArray(("topic", NAME), ("partitions", CompactArray(Int32)), TAGS)), TAGS)


async def log_sizes(cluster: UpstreamCluster, topics: Mapping[str, int]) -> dict[str, int]:
    """Topic -> bytes. See `partition_sizes`."""
    return {topic: sum(sizes.values()) for topic, sizes in (await partition_sizes(cluster, topics)).items()}


async def partition_sizes(cluster: UpstreamCluster, topics: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Topic -> partition -> bytes; `topics`: topic -> partitions. A topic of which a leader does not tell its log is
    absent. UnreachableError.
    """
    sizes: dict[str, dict[int, int]] = {topic: {} for topic in topics}
    async with BrokerConnections(cluster, ASK_S) as brokers:
        leaders = await brokers.partitions(*topics)
        wanted: dict[int, list[Any]] = {}
        for topic, partitions in leaders.items():
            led: dict[int, list[int]] = {}
            for partition, leader in partitions.items():
                led.setdefault(leader, []).append(partition)
            for leader, numbers in led.items():
                wanted.setdefault(leader, []).append((topic, numbers, {}))
        asked = [_folders(brokers, broker, there) for broker, there in wanted.items() if broker in brokers.brokers]
        try:
            answers = await asyncio.gather(*asked)
        except IncompatibleBrokerVersion:
            text = f"cluster {cluster.name!r} tells no sizes of topics: Kafka does since version 3.2"
            raise UnreachableError(text) from None
    for folders in answers:
        for _, _, topics_there, _ in folders:
            for topic, partitions, _ in topics_there:
                sizes[topic] |= {number: size for number, size, _, is_future, _ in partitions if not is_future}
    return {topic: sizes[topic] for topic, count in topics.items() if len(sizes[topic]) == count}


async def _folders(brokers: BrokerConnections, broker: int, wanted: list[Any]) -> list[Any]:
    """A broker that refuses, tells nothing: control needs `Describe` on the cluster for the sizes."""
    answer = await brokers.ask(broker, Exactly(DescribeLogDirsRequest_v3(wanted, {})))
    return [] if answer.error_code else list(answer.folders)
