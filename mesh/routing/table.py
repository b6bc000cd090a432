"""The routing table: immutable, numbered, looked up for every request.

Theory of operation
1. A table holds every version of every rule: the living ones decide, the past ones only count visits. Rules about
   topics, groups, transactional ids and client software are looked up apart from each other.
2. A look-up gathers the versions that match a name (one dict hit for exact names, one for each length of prefixes in
   use; a regular expression counts by the plain text at its start) and takes the living one of lowest rank. Answers
   are cached per table.
3. A topic may have another name on its cluster (`upstream_topic`), and clients know it by one name only: the first
   rule that renames a topic to what the cluster calls it gives the name, and any other name that would lead there, the
   cluster's own included, leads nowhere.
4. Two names of one cluster are two places to live. A topic's visits to a place follow from the lives of the versions
   that match it: walking over their revisions gives the sequence of clusters the topic has lived on. All gateways with
   the same table come to the same number. Time without a route does not end a visit: nothing can be written then.
   Why visits count: a broker remembers a producer's last sequence per partition. A producer that comes back with its
   topic has a gap there, so from the second visit on its batches carry another producer id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import NamedTuple

from mesh.routing.rules import ExactName, ForwardingRule, Match, RuleVersion, Subject
from mesh.topics import is_topic_name

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


class Place(NamedTuple):
    """Where a topic can live: a cluster, and the name that the topic has there."""

    cluster: str
    upstream_topic: str


class Stay(NamedTuple):
    """A topic's time at a place: which one, and how many times it has lived there by then (from 1)."""

    cluster: str
    visit: int
    upstream_topic: str


@dataclass(frozen=True, slots=True)
class Route:
    """Where a topic lives: the cluster, the rule that says so, how many times it has lived there (from 1), where it
    has lived just before, if it has moved at all, and what it is called there."""

    cluster: str
    rule: ForwardingRule
    visit: int
    before: Stay | None
    upstream_topic: str


class _Index:
    """Rule versions by what they match on: exact names, and how other names begin."""

    __slots__ = ("_by_head", "_exact", "_lengths")

    def __init__(self, versions: Iterable[RuleVersion]) -> None:
        self._exact: dict[str, list[RuleVersion]] = {}
        self._by_head: dict[str, list[RuleVersion]] = {}
        for version in versions:
            match = version.rule.match
            by_text = self._exact if isinstance(match, ExactName) else self._by_head
            by_text.setdefault(match.head, []).append(version)
        self._lengths = sorted({len(head) for head in self._by_head})

    def matching(self, name: str) -> list[RuleVersion]:
        """Every version, living or past, that matches the name."""
        found = list(self._exact.get(name, ()))
        for length in self._lengths:
            if length > len(name):
                break
            of_this_head = self._by_head.get(name[:length], ())
            found.extend(version for version in of_this_head if version.rule.match.matches(name))
        return found


class _Renames:
    """A cluster's living rules that give topics other names there, by how those names begin."""

    __slots__ = ("_by_head", "_lengths")

    def __init__(self, rules: Iterable[ForwardingRule]) -> None:
        self._by_head: dict[str, list[tuple[int, ForwardingRule]]] = {}
        for order, rule in enumerate(rules):
            self._by_head.setdefault(rule.upstream_head, []).append((order, rule))
        self._lengths = sorted({len(head) for head in self._by_head})

    def leading_to(self, upstream_topic: str) -> Iterator[tuple[ForwardingRule, str]]:
        """Rules with the name that each would call this topic, first rule first."""
        heads = (upstream_topic[:length] for length in self._lengths if length <= len(upstream_topic))
        for _, rule in sorted((each for head in heads for each in self._by_head.get(head, ())), key=itemgetter(0)):
            name = rule.virtual_name(upstream_topic)
            if name is not None:
                yield rule, name


class RoutingTable:
    """Clusters and rules at one revision. Build a new one to change anything."""

    __slots__ = ("_cache", "_indexes", "_renames", "_virtual", "clusters", "revision", "versions")

    def __init__(
        self, revision: int = 0, clusters: Iterable[UpstreamCluster] = (), versions: Iterable[RuleVersion] = ()
    ) -> None:
        self.revision = revision
        self.clusters: dict[str, UpstreamCluster] = {c.name: c for c in sorted(clusters, key=attrgetter("ordinal"))}
        self.versions: tuple[RuleVersion, ...] = tuple(sorted(versions, key=attrgetter("rank", "from_revision")))
        self._indexes: dict[Subject, _Index] = {}
        """Made when first asked: most tables that a fold passes through never are."""
        self._cache: dict[str, Route | None] = {}
        self._virtual: dict[Place, str | None] = {}
        self._renames: dict[str, _Renames] | None = None
        """Of each cluster that has some; made when first asked, too."""

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

    def virtual_topic(self, cluster: str, upstream_topic: str) -> str | None:
        """What clients call the topic that has this name on the cluster; None where no name leads to it."""
        place = Place(cluster, upstream_topic)
        try:
            return self._virtual[place]
        except KeyError:
            pass
        if len(self._virtual) >= ROUTE_CACHE_LIMIT:
            self._virtual.clear()
        name = self._renamed(place)
        if name is None:
            route = self.route(upstream_topic)
            name = upstream_topic if route is not None and (route.cluster, route.upstream_topic) == place else None
        self._virtual[place] = name
        return name

    def renames(self, cluster: str) -> bool:
        """Whether any topic of the cluster may have another name there than clients know."""
        return cluster in self._renaming

    def group_rule(self, group: str) -> ForwardingRule | None:
        """The rule that says which cluster coordinates the group."""
        return self._home_rule(Subject.GROUP, group)

    def transaction_rule(self, transactional_id: str) -> ForwardingRule | None:
        """The rule that says which cluster coordinates the transactions of this id."""
        return self._home_rule(Subject.TRANSACTIONAL_ID, transactional_id)

    def client_rule(self, software_name: str, software_version: str) -> ForwardingRule | None:
        """The rule about this client software."""
        return self._first(Subject.CLIENT_SOFTWARE, f"{software_name}/{software_version}")

    def _home_rule(self, subject: Subject, name: str) -> ForwardingRule | None:
        rule = self._first(subject, name)
        return rule if rule is not None and rule.target_cluster in self.clusters else None

    def _first(self, subject: Subject, name: str) -> ForwardingRule | None:
        return _winner(self._matching(subject, name))

    def _matching(self, subject: Subject, name: str) -> list[RuleVersion]:
        index = self._indexes.get(subject)
        if index is None:
            index = _Index(version for version in self.versions if version.rule.match.subject is subject)
            self._indexes[subject] = index
        return index.matching(name)

    def _look_up(self, topic: str) -> Route | None:
        matching = self._matching(Subject.TOPIC, topic)
        rule = _winner(matching)
        if rule is None or rule.target_cluster not in self.clusters:
            return None
        here = _place(rule, topic)
        if rule.template is not None and not is_topic_name(here.upstream_topic):
            return None
        if self.renames(here.cluster) and self._renamed(here) not in (None, topic):
            return None
        visits = _visits(matching, topic)
        before = None
        if len(visits) > 1:
            *earlier, last = visits[:-1]
            before = Stay(last.cluster, earlier.count(last) + 1, last.upstream_topic)
        return Route(here.cluster, rule, visits.count(here), before, here.upstream_topic)

    def _renamed(self, place: Place) -> str | None:
        """The name that the first rule gives which renames a topic to this."""
        renames = self._renaming.get(place.cluster)
        if renames is None:
            return None
        candidates = renames.leading_to(place.upstream_topic)
        return next((name for rule, name in candidates if self._leads(name, rule, place)), None)

    def _leads(self, topic: str, rule: ForwardingRule, place: Place) -> bool:
        """Whether this rule decides about the topic, and leads there."""
        return (
            self._first(Subject.TOPIC, topic) is rule
            and rule.upstream_name(topic) == place.upstream_topic
            and is_topic_name(topic)
            and is_topic_name(place.upstream_topic)
        )

    @property
    def _renaming(self) -> dict[str, _Renames]:
        if self._renames is None:
            by_cluster: dict[str, list[ForwardingRule]] = {}
            for rule in self.rules:
                if rule.template is not None:
                    by_cluster.setdefault(rule.target_cluster, []).append(rule)
            self._renames = {cluster: _Renames(rules) for cluster, rules in by_cluster.items()}
        return self._renames

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        return (self.revision, self.clusters, self.versions) == (other.revision, other.clusters, other.versions)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RoutingTable(revision={self.revision}, clusters={list(self.clusters)}, rules={len(self.living)})"


def _winner(matching: Iterable[RuleVersion]) -> ForwardingRule | None:
    """The living rule of lowest rank."""
    version = min((version for version in matching if version.alive), key=attrgetter("rank"), default=None)
    return None if version is None else version.rule


def _place(rule: ForwardingRule, topic: str) -> Place:
    return Place(rule.target_cluster, rule.upstream_name(topic))


def _visits(matching: list[RuleVersion], topic: str) -> list[Place]:
    """Where a topic has lived, in order, without repeats in a row; `matching` is what ever matched it."""
    if len(matching) == 1:
        return [_place(matching[0].rule, topic)]
    revisions = {v.from_revision for v in matching}
    revisions |= {v.until_revision for v in matching if v.until_revision is not None}
    sequence: list[Place] = []
    for revision in sorted(revisions):
        winner = min((v for v in matching if v.counts_at(revision)), key=attrgetter("rank"), default=None)
        place = None if winner is None else _place(winner.rule, topic)
        if place is not None and (not sequence or sequence[-1] != place):
            sequence.append(place)
    return sequence


def may_move_topics(before: RoutingTable, after: RoutingTable) -> bool:
    """Whether any topic name could live on another cluster after the change than before, or under another name.

    Exact for the common case, a rule added behind all others, and careful otherwise: a hold costs milliseconds,
    a wrong "no" costs records.
    """
    old, new = ([rule for rule in table.rules if rule.match.subject is Subject.TOPIC] for table in (before, after))
    added = new[len(old) :]
    if [_moving(rule) for rule in new[: len(old)]] != [_moving(rule) for rule in old]:
        return True
    # a rule that renames takes the cluster's own name of a topic away from clients, wherever it stands in the order
    used = {rule.target_cluster for rule in old}
    return any(rule.template is not None and rule.target_cluster in used for rule in added)


def _moving(rule: ForwardingRule) -> tuple[Match, str, str]:
    return rule.match, rule.target_cluster, rule.upstream_topic
