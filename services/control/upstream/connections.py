"""Admin connections to upstream clusters: one per cluster, used from a few worker threads, every call with a bound.

confluent-kafka's admin client blocks; the pool of threads is bounded, so a cluster that hangs costs a thread for a
few seconds and never the event loop.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    NewPartitions,
    NewTopic,
)
from prometheus_client import Counter, Gauge

from mesh.acls import Operation
from mesh.acls import ResourceType as ResourceKind
from mesh.cluster_nodes import cluster_nodes
from mesh.cluster_properties import allowed
from mesh.connection_security import connection_properties
from mesh.routing import UpstreamCluster
from mesh.settings import host_port
from services.control.domain.log_ranges import LogRange
from services.control.domain.topics.groups import SeenGroup
from services.control.domain.topics.topics import Setting
from services.control.upstream import groups, offsets
from services.control.upstream.features import finalized_features
from services.control.upstream.groups import GroupRefusedError
from services.control.upstream.member_offsets import MemberOffsets
from services.control.upstream.own_operations import own_operations
from services.control.upstream.partitions import LivePartition, all_settings, live_partitions, topic_ids
from services.control.upstream.references import resolved_all
from services.control.upstream.topic_settings import effective_settings, own_settings, set_topic_settings

T = TypeVar("T")

THREADS = 8
REQUEST_TIMEOUT = 4.0
"""Seconds for one request to a cluster; a healthy one answers in milliseconds."""
CALL_TIMEOUT = 8.0
"""Seconds for a call with all of its requests, its wait for a thread included."""
KNOCK_TIMEOUT = 2.0
"""Seconds for a bare TCP connection."""
CREATE_TIMEOUT = 15.0
VISIBLE_POLL = 0.1

log = structlog.get_logger(__name__)
calls_failed = Counter(
    "kafka_mesh_control_upstream_failures_total", "Calls to upstream clusters that failed.", ["cluster"]
)
calls_running = Gauge("kafka_mesh_control_upstream_calls", "Calls to upstream clusters that run or wait for a thread.")


class UnreachableError(RuntimeError):
    """The cluster does not answer; the message says why, and names it."""


@dataclass(frozen=True, slots=True)
class SeenBroker:
    """A broker as its cluster describes it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """A cluster as it describes itself."""

    kafka_cluster_id: str
    brokers: tuple[SeenBroker, ...]
    features: Mapping[str, str]
    latency_ms: float


class Connections:
    """Asks upstream clusters. Safe to use from one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="upstream")
        self._clients: dict[str, tuple[dict[str, Any], AdminClient]] = {}

    async def describe(self, cluster: UpstreamCluster) -> SeenCluster:
        """Connects and reads cluster id, brokers and features. The cost does not depend on the number of topics."""
        return await self._call(cluster, _describe)

    async def partitions_of(self, cluster: UpstreamCluster, topic: str) -> int | None:
        """The number of partitions that the topic has there now; None when there is no such topic."""
        return await self._call(cluster, lambda client, _: _partitions_of(client, topic))

    async def topic_ids(self, cluster: UpstreamCluster, topics: Collection[str]) -> dict[str, bytes]:
        """The cluster's ids of those topics that it has; an empty one if it is older than ids."""
        return await self._call(cluster, lambda client, _: topic_ids(client, topics))

    async def topics(self, cluster: UpstreamCluster) -> dict[str, int]:
        """Every topic with its number of partitions, as the cluster knows them now."""
        return await self._call(cluster, _topics)

    async def topic_settings(self, cluster: UpstreamCluster, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """For each topic the settings that were made on it, defaults left out."""
        return await self._call(cluster, lambda client, _: own_settings(client, topics))

    async def effective_settings(
        self, cluster: UpstreamCluster, topics: Sequence[str], names: Collection[str]
    ) -> dict[str, dict[str, str]]:
        """For each topic the effective values of these settings, wherever they were made."""
        return await self._call(cluster, lambda client, _: effective_settings(client, topics, names))

    async def set_topic_settings(
        self, cluster: UpstreamCluster, topic: str, settings: Mapping[str, str | None]
    ) -> None:
        """Changes these settings of a topic; None takes one back."""
        await self._call(cluster, lambda client, _: set_topic_settings(client, topic, settings))

    async def all_settings(self, cluster: UpstreamCluster, topic: str) -> list[Setting]:
        """Every setting of a topic by name, with its effective value."""
        return await self._call(cluster, lambda client, _: all_settings(client, topic))

    async def own_operations(
        self, cluster: UpstreamCluster, kind: ResourceKind, name: str
    ) -> frozenset[Operation] | None:
        """The operations that the cluster's own ACLs allow the mesh on a resource; None if unknown."""

        def ask(client: AdminClient, _: UpstreamCluster) -> frozenset[Operation] | None:
            knock(cluster.bootstrap_servers)
            return own_operations(client, kind, name)

        return await self._call(cluster, ask)

    async def seen_groups(self, cluster: UpstreamCluster) -> dict[str, SeenGroup]:
        """The consumer groups that the cluster lists."""
        return await self._call(cluster, lambda client, _: groups.seen_groups(client, CALL_TIMEOUT - REQUEST_TIMEOUT))

    async def members_of_all(
        self, cluster: UpstreamCluster, names: Collection[str]
    ) -> dict[str, tuple[groups.GroupMember, ...]]:
        """The members of each of these groups; a group whose coordinator does not say them now is absent."""
        return await self._call(cluster, lambda client, _: groups.members_of_all(client, names))

    async def committed(
        self, cluster: UpstreamCluster, names: Collection[str] | None = None
    ) -> dict[str, dict[tuple[str, int], int]]:
        """Group -> topic and partition -> committed offset, of all groups or the named ones."""
        return await self._call(
            cluster, lambda client, _: offsets.committed(client, names, CALL_TIMEOUT - REQUEST_TIMEOUT)
        )

    async def readers(self, cluster: UpstreamCluster) -> dict[str, set[str]]:
        """Group -> topics that it has committed offsets of."""
        return await self._call(cluster, lambda client, _: offsets.readers(client, CALL_TIMEOUT - REQUEST_TIMEOUT))

    async def create_topics(
        self, cluster: UpstreamCluster, topics: Mapping[str, tuple[int, Mapping[str, str]]]
    ) -> None:
        """Creates topics (name -> partitions and settings) and waits until the cluster shows them."""
        await self._call(cluster, lambda client, _: _create(client, topics), CREATE_TIMEOUT)

    async def grow_topic(self, cluster: UpstreamCluster, topic: str, partitions: int) -> None:
        """Gives a topic so many partitions."""
        await self._call(cluster, lambda client, _: _grow(client, topic, partitions))

    async def ask(self, cluster: UpstreamCluster, work: Callable[[AdminClient], T]) -> T:
        """The result of work with the cluster's client; UnreachableError where it raises KafkaException."""
        return await self._call(cluster, lambda client, _: work(client))

    async def delete_topics(self, cluster: UpstreamCluster, topics: Sequence[str]) -> None:
        """Deletes topics; those that are not there count as deleted."""
        await self._call(cluster, lambda client, _: _delete(client, topics), CREATE_TIMEOUT)

    async def log_ranges(
        self, cluster: UpstreamCluster, topics: Mapping[str, int], *, known_only: bool = False
    ) -> dict[str, dict[int, LogRange]]:
        """First and next offsets of every partition; `topics`: topic -> partitions. See `offsets.log_ranges`."""
        bound = CALL_TIMEOUT - REQUEST_TIMEOUT
        return await self._call(
            cluster, lambda client, _: offsets.log_ranges(client, topics, bound, known_only=known_only)
        )

    async def log_ends(self, cluster: UpstreamCluster, topic: str, partitions: int) -> dict[int, int]:
        """The next offset of every partition: one request to each leader, where `log_ranges` has two."""
        bound = CALL_TIMEOUT - REQUEST_TIMEOUT
        return await self._call(cluster, lambda client, _: offsets.log_ends(client, topic, partitions, bound))

    async def live_partitions(self, cluster: UpstreamCluster, topic: str) -> list[LivePartition]:
        """The leader and the offsets of each partition of a topic that exists."""
        return await self._call(cluster, lambda client, _: live_partitions(client, topic))

    async def positions(
        self, cluster: UpstreamCluster, topics: Collection[str], groups: Collection[str] | None = None
    ) -> dict[str, dict[str, dict[int, int]]]:
        """Topic -> group -> partition -> committed offset, of all groups or the named ones."""
        return await self._call(
            cluster, lambda client, _: offsets.positions(client, topics, groups, CALL_TIMEOUT - REQUEST_TIMEOUT)
        )

    async def members(self, cluster: UpstreamCluster, group: str) -> tuple[groups.GroupMember, ...]:
        """The members of a group there; none, if the cluster does not know the group."""

        def ask(client: AdminClient, _: UpstreamCluster) -> tuple[groups.GroupMember, ...]:
            knock(cluster.bootstrap_servers)
            return groups.members(client, group, CALL_TIMEOUT - REQUEST_TIMEOUT)

        return await self._call(cluster, ask)

    async def offsets_since(
        self, cluster: UpstreamCluster, topic: str, times: Mapping[int, datetime]
    ) -> dict[int, int]:
        """For each partition the offset of the first record not older than its time; -1 where there is none."""
        bound = CALL_TIMEOUT - REQUEST_TIMEOUT
        return await self._call(cluster, lambda client, _: groups.offsets_since(client, topic, times, bound))

    async def set_offsets(self, cluster: UpstreamCluster, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Sets the offsets of an empty group; GroupRefusedError when the cluster refuses."""
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        bound = CALL_TIMEOUT - REQUEST_TIMEOUT
        await self._call(cluster, lambda client, _: groups.set_offsets(client, group, wanted, bound))

    async def stable_positions(
        self, cluster: UpstreamCluster, topic: str, of: Collection[str] | None = None
    ) -> offsets.StablePositions:
        """The positions in one topic, of all groups or the named ones, with the groups whose transactions are open."""
        bound = CALL_TIMEOUT - REQUEST_TIMEOUT
        return await self._call(cluster, lambda client, _: offsets.stable_positions(client, topic, of, bound))

    async def set_positions(
        self,
        cluster: UpstreamCluster,
        group: str,
        topic: str,
        positions: Mapping[int, offsets.Position],
        members: MemberOffsets,
    ) -> None:
        """Sets a group's positions in one topic; GroupRefusedError when the cluster refuses."""
        wanted = [TopicPartition(topic, number, each.offset, each.metadata) for number, each in positions.items()]
        bound = CALL_TIMEOUT - REQUEST_TIMEOUT

        def set_them(client: AdminClient, _: UpstreamCluster) -> None:
            try:
                groups.set_offsets(client, group, wanted, bound)
            except GroupRefusedError as error:
                if not error.by_members:
                    raise
                members.set(group, wanted)

        await self._call(cluster, set_them)

    async def run(self, work: Callable[[], T], bound: float = CALL_TIMEOUT) -> T:
        """Runs blocking work of this room (checks by librdkafka) on its threads."""
        async with asyncio.timeout(bound):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def forget(self, name: str) -> None:
        """Drops the client for this cluster; the next call makes a new one."""
        self._clients.pop(name, None)

    def close(self) -> None:
        self._clients.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _call(
        self, cluster: UpstreamCluster, ask: Callable[[AdminClient, UpstreamCluster], T], bound: float = CALL_TIMEOUT
    ) -> T:
        client = self._client(cluster)
        with calls_running.track_inprogress():
            try:
                return await self.run(lambda: ask(client, cluster), bound)
            except (KafkaException, TimeoutError) as error:
                self.forget(cluster.name)  # the client may have lost all brokers for good: `mesh/lost_brokers.py`
                calls_failed.labels(cluster.name).inc()
                addresses = ", ".join(cluster.bootstrap_servers)
                raise UnreachableError(
                    f"cluster {cluster.name!r} at {addresses} does not answer: {reason_of(error)}"
                ) from error

    def _client(self, cluster: UpstreamCluster) -> AdminClient:
        config = connection_settings(cluster)
        known = self._clients.get(cluster.name)
        if known is None or known[0] != config:
            known = self._clients[cluster.name] = (config, AdminClient(config))
        return known[1]


def connection_settings(cluster: UpstreamCluster) -> dict[str, Any]:
    """The properties of every client of control for this cluster. Reads the secrets that references name."""
    settings = resolved_all(
        f"clusters/{cluster.name}",
        connection_properties(allowed(cluster.producer_config), allowed(cluster.consumer_config)),
    )
    return {
        "client.id": "kafka-mesh-control",
        **settings,
        "bootstrap.servers": ",".join(cluster.bootstrap_servers),
        "socket.connection.setup.timeout.ms": int(REQUEST_TIMEOUT * 1000),
        "reconnect.backoff.max.ms": 2000,
        "log_level": 0,  # what fails is in our own answers and log lines; librdkafka writes to standard error
    }


def knock(addresses: Sequence[str]) -> None:
    """Opens a connection to the first address that takes one; librdkafka alone would try until its time is up, and not
    say why it failed.
    """
    reasons: list[str] = []
    for address in addresses:
        try:
            socket.create_connection(host_port(address), KNOCK_TIMEOUT).close()
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise TimeoutError("; ".join(reasons))


def _describe(client: AdminClient, cluster: UpstreamCluster) -> SeenCluster:
    knock(cluster.bootstrap_servers)
    started = time.monotonic()
    described = cluster_nodes(client, REQUEST_TIMEOUT)
    latency_ms = (time.monotonic() - started) * 1000
    if not described.brokers:
        raise TimeoutError("it has no broker that can be used now")
    brokers = tuple(SeenBroker(number, host, port) for number, (host, port) in described.brokers.items())
    properties = connection_properties(cluster.producer_config, cluster.consumer_config)
    plain = properties.get("security.protocol", "plaintext").lower() == "plaintext"
    features = finalized_features(cluster.bootstrap_servers, REQUEST_TIMEOUT) if plain else {}
    return SeenCluster(described.cluster_id or "", brokers, features, latency_ms)


def _partitions_of(client: AdminClient, topic: str) -> int | None:
    (found,) = client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT).values()
    try:
        return len(found.result(REQUEST_TIMEOUT).partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _topics(client: AdminClient, cluster: UpstreamCluster) -> dict[str, int]:
    knock(cluster.bootstrap_servers)
    metadata = client.list_topics(timeout=REQUEST_TIMEOUT)
    return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _create(client: AdminClient, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    new = [
        NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(settings))
        for name, (partitions, settings) in topics.items()
    ]
    for future in client.create_topics(new, request_timeout=REQUEST_TIMEOUT).values():
        try:
            future.result(REQUEST_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    deadline = time.monotonic() + REQUEST_TIMEOUT
    while not topics.keys() <= client.list_topics(timeout=REQUEST_TIMEOUT).topics.keys():
        if time.monotonic() > deadline:
            raise TimeoutError("topics were created but do not show up")
        time.sleep(VISIBLE_POLL)


def _grow(client: AdminClient, topic: str, partitions: int) -> None:
    wanted = [NewPartitions(topic, partitions)]
    client.create_partitions(wanted, request_timeout=REQUEST_TIMEOUT)[topic].result(REQUEST_TIMEOUT)


def _delete(client: AdminClient, topics: Sequence[str]) -> None:
    for future in client.delete_topics(list(topics), request_timeout=REQUEST_TIMEOUT).values():
        try:
            future.result(REQUEST_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def reason_of(error: BaseException) -> str:
    """The reason in the error of a client, or in that of a bound that was reached."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return str(error.args[0].str())
    return str(error) or "no answer in time"
