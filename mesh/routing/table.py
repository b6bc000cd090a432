"""The routing table: immutable, numbered, looked up for every request.

Theory of operation
1. A table holds the living rules, which decide, and the past as far as it counts visits: counted up in `pasts`, or as
   versions of rules (`history` says which). Rules about topics, groups, transactional ids and client software are
   looked up apart from each other.
2. A look-up gathers the versions that match a name and takes the living one of lowest rank. It costs one dict hit for
   exact names and one for each length of prefixes in use. A table caches its answers.
3. A topic may have another name on its cluster (`upstream_topic`), and clients know a topic by one name only. The first
   rule that renames a topic to the cluster's name gives the client's name. Any other name for that topic, the cluster's
   own included, is unknown to clients.
4. Two names on one cluster are two places. A topic's visits to a place follow from its past and from the lives of the
   versions that match it (`visits`). All gateways with the same table come to the same number. Time without a
   route does not end a visit: nothing can be written then.
   Why visits count: a broker remembers a producer's last sequence per partition. A producer that comes back with its
   topic has a gap there, so from the second visit on its batches carry another producer id.
5. Some rules are about some clients only. Each client has a table of its own (`for_client`): the rules whose conditions
   hold for it and those without, its visits counted by these alone. Clients for whom the same conditions hold share
   one. The table itself, asked for a name, answers as for a client of whom nothing is known.
6. The rule about unmatched topics is tried after all others, whatever its rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol
from weakref import WeakValueDictionary

from mesh.routing.clients import ClientIdentity, ClientMatch
from mesh.routing.clusters import UpstreamCluster
from mesh.routing.index import Index, Renames
from mesh.routing.living import LivingRules, versions_of
from mesh.routing.ordered import Ordered
from mesh.routing.policies import NO_POLICIES, Policies
from mesh.routing.rule_indexes import RuleIndexes
from mesh.routing.rules import ForwardingRule, RuleVersion, Subject
from mesh.routing.topic_versions import TopicVersions
from mesh.routing.visits import Past, Place, Stay, visits_of
from mesh.topics import is_own_topic, is_topic_name

ROUTE_CACHE_LIMIT = 500_000
"""Answers that one table and all that clients see of it remember; then they start afresh (about 100 MB)."""
CLIENT_TABLES_KEPT = 100
"""Tables of clients that are kept for the next one of their kind; those in use are there anyway."""
EVERYONE: frozenset[ClientMatch] = frozenset()
"""The conditions that hold for a client of whom nothing is known."""


class Rules(Protocol):
    """The rules of a table, or of a history, and their past; all in their order."""

    @property
    def living_rules(self) -> LivingRules: ...
    @property
    def topics(self) -> TopicVersions: ...


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's place: the cluster, the rule that decides, the number of the visit (from 1), the place before that (if
    the topic has moved), and the topic's name there."""

    cluster: str
    rule: ForwardingRule
    visit: int
    before: Stay | None
    upstream_topic: str

    @property
    def stay(self) -> Stay:
        """The topic's time there, until it moves."""
        return Stay(self.cluster, self.visit, self.upstream_topic)


class _Common(RuleIndexes):
    """The part that a table shares with the views of single clients: rules about everyone are looked up in one place,
    and all views share one bound of cached answers."""

    __slots__ = ("_remembered", "_tables", "clusters", "policies", "revision")

    def __init__(
        self,
        revision: int,
        clusters: dict[str, UpstreamCluster],
        living: LivingRules,
        topics: TopicVersions,
        policies: Policies,
    ) -> None:
        super().__init__(living, topics)
        self.revision = revision
        self.clusters = clusters
        self.policies = policies
        self._tables: WeakValueDictionary[frozenset[ClientMatch], RoutingTable] = WeakValueDictionary()
        self._remembered = 0

    def joined_by(self, table: RoutingTable, holding: frozenset[ClientMatch]) -> None:
        self._tables[holding] = table

    def table(self, holding: frozenset[ClientMatch]) -> RoutingTable:
        """The table of clients for whom exactly these conditions hold."""
        table = self._tables.get(holding)
        if table is None:
            table = RoutingTable.__new__(RoutingTable)
            table._begin(self, holding)  # its second constructor
            whole = self._tables.get(EVERYONE)
            if whole is not None:
                whole._kept.append(table)
        return table

    def remember_one_more(self) -> None:
        if self._remembered >= ROUTE_CACHE_LIMIT:
            self._remembered = 0
            for table in self._tables.values():
                table.forget()
        self._remembered += 1


class RoutingTable:
    """Clusters and rules at one revision. Build a new one to change anything."""

    __slots__ = (
        "__weakref__", "_cache", "_common", "_ended", "_holding", "_indexes", "_is_whole", "_kept", "_living",
        "_renames", "_versions", "_virtual", "clusters", "policies", "revision",
    )  # fmt: skip

    revision: int
    clusters: dict[str, UpstreamCluster]
    policies: Policies
    _living: LivingRules | None
    _ended: tuple[RuleVersion, ...] | None

    def __init__(
        self,
        revision: int = 0,
        clusters: Iterable[UpstreamCluster] = (),
        versions: Iterable[RuleVersion] = (),
        pasts: Iterable[Past] = (),
        policies: Policies = NO_POLICIES,
    ) -> None:
        by_ordinal = {c.name: c for c in sorted(clusters, key=attrgetter("ordinal"))}
        given = tuple(versions)
        living, ended = LivingRules.of(given), (version for version in given if not version.alive)
        topics = TopicVersions.of(living, ended, pasts)
        self._begin_whole(_Common(revision, by_ordinal, living, topics, policies))

    @classmethod
    def resting_on(
        cls, revision: int, clusters: dict[str, UpstreamCluster], rules: Rules, policies: Policies
    ) -> RoutingTable:
        """The table of these clusters, rules, which are in their order, and policies."""
        by_ordinal = {c.name: c for c in sorted(clusters.values(), key=attrgetter("ordinal"))}
        table = cls.__new__(cls)
        table._begin_whole(_Common(revision, by_ordinal, rules.living_rules, rules.topics, policies))
        return table

    @property
    def indexes(self) -> RuleIndexes:
        """The indexes of look-ups."""
        return self._common

    def _begin_whole(self, common: _Common) -> None:
        """Its rules are those of all clients, although it answers as for a client of whom nothing is known."""
        self._begin(common, EVERYONE)
        self._living, self._is_whole = common.living, True

    def _begin(self, common: _Common, holding: frozenset[ClientMatch]) -> None:
        self.revision = common.revision
        self.clusters = common.clusters
        self.policies = common.policies
        self._common = common
        self._holding = holding
        self._versions: tuple[RuleVersion, ...] | None = None
        self._living = None
        self._ended = None
        self._is_whole = False
        self._indexes: dict[Subject, Index[RuleVersion]] = {}
        """The indexes of the rules about some clients only."""
        self._renames: dict[str, Renames] | None = None
        """The renames of each cluster that has some."""
        self._cache: dict[str, Route | None] = {}
        self._virtual: dict[Place, str | None] = {}
        self._kept: deque[RoutingTable] = deque(maxlen=CLIENT_TABLES_KEPT)
        """The last tables of clients, kept by the whole table: all of them end at once, without a cycle."""
        common.joined_by(self, holding)

    @property
    def versions(self) -> tuple[RuleVersion, ...]:
        """All rule versions, living ones and those past ones that are not counted up, in their order."""
        if self._versions is None:
            self._versions = versions_of(self.living_rules, self.ended)
        return self._versions

    @property
    def ended(self) -> tuple[RuleVersion, ...]:
        """The past rule versions that are not counted up, in no order."""
        if self._ended is None:
            self._ended = tuple(version for version in self._common.ended if self._is_whole or self._sees(version))
        return self._ended

    @property
    def pasts(self) -> tuple[Past, ...]:
        """The counted pasts of topics, in their order."""
        return self._common.pasts

    @property
    def topics(self) -> TopicVersions:
        """The rule versions about topics and the counted pasts, for all clients."""
        return self._common.topics

    def for_client(self, client: ClientIdentity) -> RoutingTable:
        """The table that this client sees."""
        conditions = self._common.conditions
        return self._common.table(conditions.holding_for(client)) if conditions.all else self

    def for_clients(self, clients: ClientMatch | None) -> RoutingTable:
        """The table that a client sees of whom no more is known than this; None: nothing."""
        holding = EVERYONE if clients is None else self._common.conditions.implied_by(clients)
        return self._common.table(holding) if self._common.conditions.all else self

    @property
    def conditions(self) -> tuple[ClientMatch, ...]:
        """The conditions about clients of living and past rules, in the order of the rules."""
        return self._common.conditions.all

    def _sees(self, version: RuleVersion) -> bool:
        client = version.rule.match.client
        return client is None or client in self._holding

    def forget(self) -> None:
        """Drops the cached answers; each can be computed again."""
        self._cache.clear()
        self._virtual.clear()

    @property
    def living_rules(self) -> LivingRules:
        """The living rules in the order in which they are tried, and by their ids."""
        if self._living is None:
            self._living = LivingRules.of(filter(self._sees, self._common.living.ordered))
        return self._living

    @property
    def rules(self) -> tuple[ForwardingRule, ...]:
        """The living rules, first match first."""
        return self.living_rules.rules

    @property
    def living(self) -> tuple[RuleVersion, ...]:
        """The living rule versions in their order."""
        return self.living_rules.versions

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
        self._common.remember_one_more()
        route = self._cache[topic] = self._look_up(topic)
        return route

    def cluster_of(self, topic: str) -> str | None:
        """Name of the cluster where `topic` lives, or None."""
        route = self.route(topic)
        return None if route is None else route.cluster

    def virtual_topic(self, cluster: str, upstream_topic: str) -> str | None:
        """The client's name of the topic that has this name on the cluster; None if no name leads to the topic."""
        place = Place(cluster, upstream_topic)
        try:
            return self._virtual[place]
        except KeyError:
            pass
        self._common.remember_one_more()
        name = self._renamed(place)
        if name is None:
            route = self.route(upstream_topic)
            name = upstream_topic if route is not None and (route.cluster, route.upstream_topic) == place else None
        self._virtual[place] = name
        return name

    def renames(self, cluster: str) -> bool:
        """Whether any topic of the cluster may have another name there than clients know."""
        return cluster in self._renaming

    def is_known_to_others(self, cluster: str, upstream_topic: str) -> bool:
        """Whether any client, of this kind or another, has a name for the topic that the cluster calls so."""
        rules = (version.rule for version in self._common.living.about_some)
        kinds = {None, *(rule.match.client for rule in rules if rule.may_lead_to(cluster, upstream_topic))}
        return any(self.for_clients(kind).virtual_topic(cluster, upstream_topic) is not None for kind in kinds)

    def group_rule(self, group: str) -> ForwardingRule | None:
        """The rule that says which cluster coordinates the group."""
        return self._home_rule(Subject.GROUP, group)

    def transaction_rule(self, transactional_id: str) -> ForwardingRule | None:
        """The rule that says which cluster coordinates the transactions of this id."""
        return self._home_rule(Subject.TRANSACTIONAL_ID, transactional_id)

    @property
    def transaction_homes(self) -> frozenset[str]:
        """The clusters that living rules name as homes of transactional ids, for any client."""
        return self._common.transaction_homes

    def client_rule(self, software_name: str, software_version: str) -> ForwardingRule | None:
        """The rule about this client software."""
        return self._first(Subject.CLIENT_SOFTWARE, f"{software_name}/{software_version}")

    def _home_rule(self, subject: Subject, name: str) -> ForwardingRule | None:
        rule = self._first(subject, name)
        return rule if rule is not None and rule.target_cluster in self.clusters else None

    def _first(self, subject: Subject, name: str) -> ForwardingRule | None:
        return _winner(self._matching(subject, name))

    def _matching(self, subject: Subject, name: str) -> list[RuleVersion]:
        found = self._common.matching(subject, name)
        if self._holding:
            own = self._indexes.get(subject)
            if own is None:
                own = self._indexes[subject] = self._common.index_for(self._holding, subject)
            found += own.matching(name)
        return found

    def _look_up(self, topic: str) -> Route | None:
        matching = self._matching(Subject.TOPIC, topic)
        rule = _winner(matching)
        if rule is None or rule.target_cluster not in self.clusters:
            return None
        here = Place(rule.target_cluster, rule.upstream_name(topic))
        if is_own_topic(topic) or is_own_topic(here.upstream_topic):
            return None
        if rule.template is not None and not is_topic_name(here.upstream_topic):
            return None
        if self.renames(here.cluster) and self._renamed(here) not in (None, topic):
            return None
        visits = visits_of(topic, self._common.past(topic), matching)
        earlier = [Stay(place.cluster, count, place.upstream_topic) for place, count in visits.items() if place != here]
        return Route(here.cluster, rule, visits[here], earlier[-1] if earlier else None, here.upstream_topic)

    def _renamed(self, place: Place) -> str | None:
        """The name that the first rule gives which renames a topic to this."""
        renames = self._renaming.get(place.cluster)
        if renames is None:
            return None
        candidates = renames.leading_to(place.upstream_topic)
        return next((name for rule, name in candidates if self._leads(name, rule, place)), None)

    def _leads(self, topic: str, rule: ForwardingRule, place: Place) -> bool:
        """Whether this rule decides about the topic, and leads there."""
        there = place.upstream_topic
        are_names = is_topic_name(topic) and is_topic_name(there) and not (is_own_topic(topic) or is_own_topic(there))
        return self._first(Subject.TOPIC, topic) == rule and rule.upstream_name(topic) == there and are_names

    @property
    def _renaming(self) -> dict[str, Renames]:
        if self._renames is None:
            by_cluster: dict[str, list[ForwardingRule]] = {}
            for version in self._common.renaming:
                if self._sees(version):
                    by_cluster.setdefault(version.rule.target_cluster, []).append(version.rule)
            self._renames = {cluster: Renames(rules) for cluster, rules in by_cluster.items()}
        return self._renames

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        if (self.revision, self.clusters, self.policies) != (other.revision, other.clusters, other.policies):
            return False
        if not (self._is_whole and other._is_whole):
            return (self.versions, self.pasts) == (other.versions, other.pasts)
        pairs = zip(self._ordered, other._ordered, strict=True)
        return all(one.same_as(another) for one, another in pairs)

    @property
    def _ordered(self) -> tuple[Ordered[Any], ...]:
        return self._common.living.ordered, self.topics.ended, self.topics.pasts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RoutingTable(revision={self.revision}, clusters={list(self.clusters)}, rules={len(self.living_rules)})"


def _winner(matching: Iterable[RuleVersion]) -> ForwardingRule | None:
    """The living rule that is tried first."""
    version = min((version for version in matching if version.alive), key=attrgetter("order"), default=None)
    return None if version is None else version.rule
