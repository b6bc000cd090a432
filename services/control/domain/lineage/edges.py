"""The edges of lineage that one look of control shows: clients, record rules, sidecars. No I/O.

Theory of operation
1. A gateway reports for each kind of client the topics that it produced to and fetched from lately, and the groups that
   it joined. The connections of one application may be at several gateways: so all of them count together.
2. A group reads a topic if an application of the group fetches the topic, and the group has committed offsets of it. If
   control knows no topic of the group's offsets, or the application has one group only, the fetch alone counts.
3. A topic that an application fetches for no such group is read by the application itself.
4. A record rule copies while a router says that it runs. Its topics are those of its progress.
5. A topic of a client is named as clients know it. A topic of a record rule is a place, "CLUSTER/TOPIC": names of Kafka
   have no "/". `places.py` brings both together when somebody asks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from mesh.record_rules import COPY_PREFIX, RecordRule
from mesh.routing import Place
from mesh.rpc import discovery, record_rules
from services.control.domain.lineage.applications import Application, application_of, without_ends
from services.control.domain.records.flows import targets_of, template_of

Committed = Mapping[str, Collection[str]]
"""Group -> topics of its offsets."""


class NodeKind(StrEnum):
    """The kinds of nodes, as rows have them."""

    TOPIC = "topic"
    GROUP = "group"
    APPLICATION = "application"
    BACKEND = "backend"


class EdgeKind(StrEnum):
    """The kinds of edges, as rows have them."""

    PRODUCES = "produces"
    CONSUMES = "consumes"
    MEMBER = "member"
    COPIES = "copies"
    DELIVERS = "delivers"


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A topic, a group, an application or a backend."""

    kind: NodeKind
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """The way of records from one node to another; `rule` is the record rule of a copy, or the move."""

    source: Node
    target: Node
    kind: EdgeKind
    rule: str = ""


@dataclass(slots=True)
class _Deeds:
    """The names that the clients of one application use."""

    produced: set[str] = field(default_factory=set)
    consumed: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    client_ids: set[str] = field(default_factory=set)


def topic_at(place: Place) -> Node:
    """The node of a topic that is known by its place."""
    return Node(NodeKind.TOPIC, f"{place.cluster}/{place.upstream_topic}")


def edges_of_clients(
    reports: Iterable[discovery.ClientReport], committed: Committed, sidecars: Collection[str]
) -> Iterator[Edge]:
    """The edges of all applications; `sidecars`: names of those that control hears, which are their client.ids."""
    known: dict[Application, _Deeds] = {}
    for report in reports:
        for each in report.clients:
            _add(known.setdefault(application_of(each.principal, each.client_id), _Deeds()), each)
    for application, deeds in known.items():
        node = Node(NodeKind.APPLICATION, application.name)
        for topic in deeds.produced:
            yield Edge(node, Node(NodeKind.TOPIC, topic), EdgeKind.PRODUCES)
        for group in deeds.groups:
            yield Edge(Node(NodeKind.GROUP, group), node, EdgeKind.MEMBER)
        for topic in deeds.consumed:
            readers = list(_groups_of(topic, deeds.groups, committed))
            for reader in readers or [node]:
                yield Edge(Node(NodeKind.TOPIC, topic), reader, EdgeKind.CONSUMES)
        for sidecar in deeds.client_ids.intersection(sidecars):
            yield Edge(node, Node(NodeKind.BACKEND, without_ends(sidecar)), EdgeKind.DELIVERS)


def _add(deeds: _Deeds, client: discovery.ConnectedClient) -> None:
    topics = dict(enumerate(client.topics))
    deeds.produced.update(topics[place] for place in client.produced if place in topics)
    deeds.consumed.update(topics[place] for place in client.consumed if place in topics)
    deeds.groups.update(client.groups)
    deeds.client_ids.add(client.client_id)


def _groups_of(topic: str, groups: Collection[str], committed: Committed) -> Iterator[Node]:
    for group in groups:
        if len(groups) == 1 or topic in committed.get(group, (topic,)):
            yield Node(NodeKind.GROUP, group)


def edges_of_rules(
    rules: Iterable[RecordRule], progress: Mapping[str, record_rules.RecordRuleProgress]
) -> Iterator[Edge]:
    """The edges of the record rules that a router runs; `progress`: of each rule, what its router reports."""
    for rule in rules:
        said = progress.get(rule.rule_id)
        if said is None or rule.paused or said.problem:
            continue
        topics = {each.topic for each in said.partitions}
        for source, target in _copies(rule.spec, topics):
            yield Edge(topic_at(source), topic_at(target), EdgeKind.COPIES, _name(rule))


def _copies(spec: record_rules.RecordRuleSpec, topics: Iterable[str]) -> Iterator[tuple[Place, Place]]:
    match spec.WhichOneof("kind"):
        case "mirror":
            template = template_of(spec.mirror)
            for topic in topics:
                target = Place(spec.mirror.target_cluster, template.upstream(topic))
                yield Place(spec.mirror.source_cluster, topic), target
        case "content":
            source = Place(spec.content.source_cluster, spec.content.topic)
            targets = {(each.cluster or source.cluster, each.topic) for _, each in targets_of(spec.content)}
            for cluster, topic in targets:
                yield source, Place(cluster, topic)
        case "copy":
            copy = spec.copy
            yield Place(copy.source_cluster, copy.topic), Place(copy.target_cluster, copy.target_topic)


def _name(rule: RecordRule) -> str:
    return f"topicmoves/{rule.rule_id.removeprefix(COPY_PREFIX)}" if rule.is_copy else f"recordrules/{rule.rule_id}"
