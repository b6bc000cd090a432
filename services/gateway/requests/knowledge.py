"""Knowledge about one upstream cluster, from its answers: brokers, leaders, topic ids, versions. No I/O."""

import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.api_versions import ApiVersionsResponse
from services.gateway.wire.messages.metadata import MetadataResponse
from services.gateway.wire.schema import NO_UUID


class VersionRange(NamedTuple):
    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def intersection(self, other: "VersionRange") -> "VersionRange | None":
        low, high = max(self.low, other.low), min(self.high, other.high)
        return VersionRange(low, high) if low <= high else None

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


class BrokerAddress(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class TopicKnowledge:
    """A topic as its cluster described it.

    `leaders` holds the broker id of the leader of each partition, None for a partition without a leader.
    """

    name: str
    topic_id: bytes
    leaders: tuple[int | None, ...]
    replicas: tuple[int, ...] = ()
    """The number of replicas of each partition; empty if no answer has shown them."""

    def is_single(self, partition: int) -> bool:
        """Whether the leader has the partition's only replica, as far as the gateway knows."""
        return partition < len(self.replicas) and self.replicas[partition] == 1


_editions = itertools.count(1)


@dataclass(slots=True)
class ClusterKnowledge:
    """Mutable: `learn*` replaces knowledge topic by topic. Topics have the cluster's own names."""

    name: str
    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    controller_id: int = -1
    topics: dict[str, TopicKnowledge] = field(default_factory=dict)
    """Topics as seen last, also while the cluster can't be reached."""
    names_edition: int = field(default_factory=lambda: next(_editions))
    """Another number, which no other cluster has, as soon as a topic is seen that was not among `topics`."""
    leaders_edition: int = 0
    """Another number as soon as the leaders of a topic may be others than before, or are in doubt."""
    stale: set[str] = field(default_factory=set)
    """Topics whose leaders the gateway must ask for again before use."""
    topic_names: dict[bytes, str] = field(default_factory=dict)
    versions: dict[int, VersionRange] = field(default_factory=dict)
    """API key -> range that all asked brokers have in common; empty before the first contact."""
    supported_features: dict[str, VersionRange] = field(default_factory=dict)
    finalized_features: dict[str, int] = field(default_factory=dict)
    features_epoch: int = 0
    """Grows with every change of the cluster's features."""
    """The features that the cluster as a whole has finalized (KIP-584): name -> level, as the broker asked last says.
    """
    down: str | None = "not connected yet"
    """Why the cluster can't be reached now; None while it can."""
    down_since: float = float("-inf")
    """Since when, if it could be reached before."""
    _spoken: dict[int, dict[int, VersionRange]] = field(default_factory=dict)
    """Broker id -> API key -> range."""

    @property
    def by_own_names(self) -> "ClusterKnowledge":
        """The same knowledge, with the cluster's own names."""
        return self

    @property
    def naming(self) -> int:
        """Which names the topics have here: 0 for the cluster's own."""
        return 0

    @property
    def available(self) -> bool:
        return self.down is None

    def leader(self, topic: str, partition: int) -> int | None:
        """Broker id of the leader; None while it is not known or there is none."""
        known = self.topics.get(topic)
        if known is None or topic in self.stale or not 0 <= partition < len(known.leaders):
            return None
        return known.leaders[partition]

    def leaders(self, topic: str) -> tuple[int | None, ...]:
        """As `leader`, for all partitions at once; empty while the leaders are not known."""
        known = self.topics.get(topic)
        return () if known is None or topic in self.stale else known.leaders

    def partition_count(self, topic: str) -> int | None:
        known = self.topics.get(topic)
        return None if known is None else len(known.leaders)

    def learn(self, response: MetadataResponse) -> None:
        """Takes over brokers and topics of an answer; topics that the answer does not name stay as they are."""
        if response.brokers:
            self.brokers = {b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
            self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.leaders_edition += topic.name in self.topics
                self._drop(topic.name)
            elif topic.error_code == ErrorCode.NONE:
                leaders: list[int | None] = [None] * len(topic.partitions)
                replicas = [0] * len(topic.partitions)
                for partition in topic.partitions:
                    if 0 <= partition.partition_index < len(leaders) and partition.leader_id >= 0:
                        leaders[partition.partition_index] = partition.leader_id
                        replicas[partition.partition_index] = len(partition.replica_nodes)
                known, topic_id = self.topics.get(topic.name), topic.topic_id
                if topic_id == NO_UUID and known is not None:  # older versions of the answer have no ids
                    topic_id = known.topic_id
                told = TopicKnowledge(topic.name, topic_id, tuple(leaders), tuple(replicas))
                if known == told:  # the same object stays, because others compare it by identity
                    self.leaders_edition += topic.name in self.stale
                    self.stale.discard(topic.name)
                    continue
                if known is None:
                    self.names_edition = next(_editions)
                self.leaders_edition += 1
                self._drop(topic.name)
                self.topics[topic.name] = told
                if topic_id != NO_UUID:
                    self.topic_names[topic_id] = topic.name

    def forget(self, gone: Collection[str]) -> None:
        """These topics are gone."""
        self.leaders_edition += bool(gone)
        for topic in gone:
            self._drop(topic)

    def learn_versions(self, broker_id: int, response: ApiVersionsResponse) -> None:
        """Takes over the versions that this broker speaks, in the place of those that it spoke before.

        Brokers that have left no longer count.
        """
        said = {v.api_key: VersionRange(v.min_version, v.max_version) for v in response.api_keys}
        self._spoken = {each: spoken for each, spoken in self._spoken.items() if each in self.brokers}
        self._spoken[broker_id] = said
        first, *others = self._spoken.values()
        common: dict[int, VersionRange] = dict(first)
        for spoken in others:
            shared = {key: common[key].intersection(spoken[key]) for key in common.keys() & spoken.keys()}
            common = {key: found for key, found in shared.items() if found is not None}
        self.versions = common

    def learn_features(self, response: ApiVersionsResponse) -> None:
        """Features belong to the whole cluster: any broker reports them."""
        self.features_epoch = max(0, response.finalized_features_epoch)
        self.supported_features = {
            f.name: VersionRange(f.min_version, f.max_version) for f in response.supported_features
        }
        self.finalized_features = {f.name: f.max_version_level for f in response.finalized_features}

    def doubt(self, topics: Iterable[str]) -> None:
        """The next use has to ask for the leaders again."""
        self.leaders_edition += 1
        self.stale.update(self.topics.keys() & set(topics))

    def _drop(self, topic: str) -> None:
        self.stale.discard(topic)
        known = self.topics.pop(topic, None)
        if known is not None:
            self.topic_names.pop(known.topic_id, None)
