"""The names of topics on one cluster, by a client's rules: to clients their own names, to the cluster its own.

Knowledge about a cluster has the cluster's own names; clients with other names for topics read it through
`RenamedKnowledge`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from mesh.routing import RoutingTable
from mesh.transactions import TRANSACTIONS_TOPIC
from services.gateway.requests.knowledge import BrokerAddress, ClusterKnowledge, TopicKnowledge, VersionRange
from services.gateway.wire.messages.api_versions import ApiVersionsResponse

K = TypeVar("K")
V = TypeVar("V")

_numbers = itertools.count(1)


def is_internal(topic: str) -> bool:
    """Whether the topic is internal to its cluster, or to the gateways: lists of all topics leave it out."""
    return topic.startswith("__") or topic == TRANSACTIONS_TOPIC


class TopicNames:
    """The names of topics in both directions, for one cluster.

    Without rules that rename, every topic has the same name on both sides.
    """

    __slots__ = ("_cluster", "_earlier", "_table", "number", "renaming")

    def __init__(self, cluster: str, table: RoutingTable, earlier: Mapping[str, str] | None = None) -> None:
        """`earlier`: names of topics with records on the cluster from an earlier stay."""
        self._cluster = cluster
        self._table = table
        self._earlier = earlier or {}
        self.number = next(_numbers)
        """No other names have this number."""
        self.renaming = bool(earlier) or table.renames(cluster)
        """Whether any topic may have another name on the cluster."""

    def upstream(self, topic: str) -> str:
        """The cluster's name for a topic, also for a topic that has left it, whose last writes a gateway asks for.

        A topic that is internal to a cluster (`__transaction_state`) has the same name everywhere.
        """
        route = None if is_internal(topic) else self._table.route(topic)
        if route is None:
            return topic
        if route.cluster == self._cluster:
            return route.upstream_topic
        if route.before is not None and route.before.cluster == self._cluster:
            return route.before.upstream_topic
        return self._earlier.get(topic, topic)

    def taken_by(self, topic: str) -> str | None:
        """The other topic that has this one's name here, if this topic's place is and was elsewhere.

        Then no request to this cluster can name this topic, because the cluster would take the name for the other
        topic. A group with shadow topics would send such requests.
        """
        if is_internal(topic):
            return None
        route = self._table.route(topic)
        if route is not None and self._cluster in (route.cluster, route.before and route.before.cluster):
            return None
        other = self._table.virtual_topic(self._cluster, topic)
        return None if other == topic else other

    def virtual(self, upstream_topic: str) -> str | None:
        """The clients' name for the cluster's topic.

        None for a topic that no client's name leads to.

        If no rule renames the topic, it keeps its name: it may be the shadow of a topic of another cluster.
        """
        name = self._table.virtual_topic(self._cluster, upstream_topic)
        return upstream_topic if name is None and self.upstream(upstream_topic) == upstream_topic else name


class _Translated(Mapping[K, V], Generic[K, V]):
    """A live mapping that is read with other keys, or gives other values."""

    __slots__ = ("_keys", "_look_up")

    def __init__(self, look_up: Callable[[K], V | None], keys: Callable[[], Iterable[K]]) -> None:
        self._look_up = look_up
        self._keys = keys

    def __getitem__(self, key: K) -> V:
        found = self._look_up(key)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[K]:
        return (key for key in self._keys() if self._look_up(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RenamedKnowledge:
    """Knowledge of a cluster with the names that some clients have for its topics.

    A `RenamedKnowledge` reads like `ClusterKnowledge`, and is always as new as the original.
    """

    __slots__ = ("_known", "_names", "topic_names", "topics")

    def __init__(self, known: ClusterKnowledge, names: TopicNames) -> None:
        self._known = known
        self._names = names
        self.topics: Mapping[str, TopicKnowledge] = _Translated(
            lambda topic: known.topics.get(names.upstream(topic)),
            lambda: (name for topic in list(known.topics) if (name := names.virtual(topic)) is not None),
        )
        self.topic_names: Mapping[bytes, str] = _Translated(
            lambda topic_id: names.virtual(known.topic_names[topic_id]) if topic_id in known.topic_names else None,
            lambda: list(known.topic_names),
        )

    @property
    def by_own_names(self) -> ClusterKnowledge:
        """The knowledge with the cluster's own names."""
        return self._known

    @property
    def name(self) -> str:
        return self._known.name

    @property
    def naming(self) -> int:
        return self._names.number

    @property
    def names_edition(self) -> int:
        return self._known.names_edition

    @property
    def brokers(self) -> Mapping[int, BrokerAddress]:
        return self._known.brokers

    @property
    def controller_id(self) -> int:
        return self._known.controller_id

    @property
    def versions(self) -> Mapping[int, VersionRange]:
        return self._known.versions

    @property
    def supported_features(self) -> Mapping[str, VersionRange]:
        return self._known.supported_features

    @property
    def finalized_features(self) -> Mapping[str, int]:
        return self._known.finalized_features

    @property
    def features_epoch(self) -> int:
        return self._known.features_epoch

    def learn_features(self, response: ApiVersionsResponse) -> None:
        self._known.learn_features(response)

    @property
    def down(self) -> str | None:
        return self._known.down

    @property
    def down_since(self) -> float:
        return self._known.down_since

    @property
    def available(self) -> bool:
        return self._known.available

    def leader(self, topic: str, partition: int) -> int | None:
        return self._known.leader(self._names.upstream(topic), partition)

    def leaders(self, topic: str) -> tuple[int | None, ...]:
        return self._known.leaders(self._names.upstream(topic))

    def partition_count(self, topic: str) -> int | None:
        return self._known.partition_count(self._names.upstream(topic))


KnownCluster = ClusterKnowledge | RenamedKnowledge
