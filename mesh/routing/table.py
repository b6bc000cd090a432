"""The routing table: immutable, numbered, looked up for every request.

Theory of operation
1. A table holds every version of every rule: the living ones decide, the past ones only count visits.
2. A look-up gathers the versions that match a topic (one dict hit for exact names, one per prefix length in use, then
   the regular expressions) and takes the living one of lowest rank. Answers are cached per table.
3. A topic's visits to a cluster follow from the lives of the versions that match it: walking over their revisions gives
   the sequence of clusters the topic has lived on. All gateways with the same table come to the same number.
   Time without a route does not end a visit: nothing can be written then.
   Why visits count: a broker remembers a producer's last sequence per partition. A producer that comes back with its
   topic has a gap there, so from the second visit on its batches carry another producer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from mesh.routing.rules import ExactTopic, ForwardingRule, RuleVersion, TopicPrefix

ROUTE_CACHE_LIMIT = 200_000
"""Topics whose route one table remembers; the cache starts afresh when it is full (bounds memory to about 50 MB)."""


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


class Stay(NamedTuple):
    """A topic's time on a cluster: which one, and how many times it has lived there by then (from 1)."""

    cluster: str
    visit: int


@dataclass(frozen=True, slots=True)
class Route:
    """Where a topic lives: the cluster, the rule that says so, how many times it has lived there (from 1), and where it
    has lived just before, if it has moved at all."""

    cluster: str
    rule: ForwardingRule
    visit: int
    before: Stay | None = None


class _Index:
    """Rule versions by what they match on."""

    __slots__ = ("_exact", "_prefix_lengths", "_prefixes", "_regexes")

    def __init__(self, versions: Iterable[RuleVersion]) -> None:
        self._exact: dict[str, list[RuleVersion]] = {}
        self._prefixes: dict[str, list[RuleVersion]] = {}
        self._regexes: list[RuleVersion] = []
        for version in versions:
            match version.rule.match:
                case ExactTopic(topic):
                    self._exact.setdefault(topic, []).append(version)
                case TopicPrefix(prefix):
                    self._prefixes.setdefault(prefix, []).append(version)
                case _:
                    self._regexes.append(version)
        self._prefix_lengths = sorted({len(prefix) for prefix in self._prefixes})

    def matching(self, topic: str) -> list[RuleVersion]:
        """Every version, living or past, that matches the topic."""
        found = list(self._exact.get(topic, ()))
        for length in self._prefix_lengths:
            if length > len(topic):
                break
            found.extend(self._prefixes.get(topic[:length], ()))
        found.extend(version for version in self._regexes if version.rule.match.matches(topic))
        return found


class RoutingTable:
    """Clusters and rules at one revision. Build a new one to change anything."""

    __slots__ = ("_cache", "_index", "clusters", "revision", "versions")

    def __init__(
        self, revision: int = 0, clusters: Iterable[UpstreamCluster] = (), versions: Iterable[RuleVersion] = ()
    ) -> None:
        self.revision = revision
        self.clusters: dict[str, UpstreamCluster] = {c.name: c for c in sorted(clusters, key=attrgetter("ordinal"))}
        self.versions: tuple[RuleVersion, ...] = tuple(sorted(versions, key=attrgetter("rank", "from_revision")))
        self._index: _Index | None = None
        self._cache: dict[str, Route | None] = {}

    @property
    def rules(self) -> tuple[ForwardingRule, ...]:
        """The living rules, first match first."""
        return tuple(version.rule for version in self.living)

    @property
    def living(self) -> tuple[RuleVersion, ...]:
        """The living rule versions in their order."""
        return tuple(version for version in self.versions if version.alive)

    @property
    def home(self) -> UpstreamCluster | None:
        """The cluster that holds mesh.events; where it is not registered, the first cluster of the mesh."""
        return next((c for c in self.clusters.values() if c.home), next(iter(self.clusters.values()), None))

    def route(self, topic: str) -> Route | None:
        """Where `topic` lives; None when no rule matches or the rule's cluster is not registered."""
        try:
            return self._cache[topic]
        except KeyError:
            pass
        if len(self._cache) >= ROUTE_CACHE_LIMIT:
            self._cache.clear()
        route = self._cache[topic] = self._look_up(topic)
        return route

    def cluster_of(self, topic: str) -> str | None:
        """Name of the cluster where `topic` lives, or None."""
        route = self.route(topic)
        return None if route is None else route.cluster

    def _look_up(self, topic: str) -> Route | None:
        if self._index is None:  # most tables that a fold passes through are never asked
            self._index = _Index(self.versions)
        matching = self._index.matching(topic)
        winner = min((v for v in matching if v.alive), key=attrgetter("rank"), default=None)
        if winner is None or winner.rule.target_cluster not in self.clusters:
            return None
        target = winner.rule.target_cluster
        visits = _visits(matching)
        *earlier, last = visits[:-1] or [""]
        before = Stay(last, earlier.count(last) + 1) if last else None
        return Route(target, winner.rule, visits.count(target), before)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        return (self.revision, self.clusters, self.versions) == (other.revision, other.clusters, other.versions)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RoutingTable(revision={self.revision}, clusters={list(self.clusters)}, rules={len(self.living)})"


def _visits(matching: list[RuleVersion]) -> list[str]:
    """Clusters that a topic has lived on, in order, without repeats in a row; `matching` is what ever matched it."""
    if len(matching) == 1:
        return [matching[0].rule.target_cluster]
    revisions = {v.from_revision for v in matching}
    revisions |= {v.until_revision for v in matching if v.until_revision is not None}
    sequence: list[str] = []
    for revision in sorted(revisions):
        winner = min((v for v in matching if v.counts_at(revision)), key=attrgetter("rank"), default=None)
        if winner is not None and (not sequence or sequence[-1] != winner.rule.target_cluster):
            sequence.append(winner.rule.target_cluster)
    return sequence


def may_move_topics(before: RoutingTable, after: RoutingTable) -> bool:
    """Whether any topic name could live on another cluster after the change than before.

    Exact for the common case, a rule added behind all others, and careful otherwise: a hold costs milliseconds,
    a wrong "no" costs records.
    """
    old, new = before.rules, after.rules
    return [(r.match, r.target_cluster) for r in new[: len(old)]] != [(r.match, r.target_cluster) for r in old]
