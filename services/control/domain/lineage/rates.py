"""The rates of edges, by the traffic that a pipeline has counted for each client and topic. No I/O.

Theory of operation
1. An edge between an application and a topic has the traffic of all client.ids of the application.
2. An edge from a topic to a group has the fetches of the applications that are members of the group. An application of
   several groups counts for none of them: nobody counts its fetches by group.
3. All other edges have no rate. Nor has an edge without counted traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.control.domain.lineage.applications import application_of
from services.control.domain.lineage.edges import Edge, EdgeKind, Node, NodeKind

PRODUCE, FETCH = "Produce", "Fetch"


@dataclass(frozen=True, slots=True)
class Rate:
    """Records and bytes in a second."""

    records: float
    bytes: float

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.records + other.records, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one client.id with one topic, by one API."""

    principal: str
    client: str
    topic: str
    api: str
    rate: Rate


def rates_of(edges: Iterable[Edge], counted: Iterable[Traffic]) -> dict[Edge, Rate]:
    """The rate of each edge that has one."""
    known: dict[tuple[Node, str, str], Rate] = {}
    for each in counted:
        node = Node(NodeKind.APPLICATION, application_of(each.principal, each.client).name)
        key = (node, each.topic, each.api)
        known[key] = known.get(key, Rate(0, 0)) + each.rate
    asked = list(edges)
    members, groups = _memberships(asked)
    found: dict[Edge, Rate] = {}
    for edge in asked:
        match edge.kind, edge.target.kind:
            case EdgeKind.PRODUCES, _:
                keys = [(edge.source, edge.target.name, PRODUCE)]
            case EdgeKind.CONSUMES, NodeKind.APPLICATION:
                keys = [(edge.target, edge.source.name, FETCH)]
            case EdgeKind.CONSUMES, _:
                alone = [each for each in members.get(edge.target, ()) if groups[each] == 1]
                keys = [(each, edge.source.name, FETCH) for each in alone]
            case _:
                continue
        rates = [known[key] for key in keys if key in known]
        if rates:
            found[edge] = sum(rates, Rate(0, 0))
    return found


def _memberships(edges: Iterable[Edge]) -> tuple[Mapping[Node, list[Node]], Mapping[Node, int]]:
    """The applications of each group, and the number of groups of each application."""
    members: dict[Node, list[Node]] = {}
    groups: dict[Node, int] = {}
    for each in edges:
        if each.kind is EdgeKind.MEMBER:
            members.setdefault(each.source, []).append(each.target)
            groups[each.target] = groups.get(each.target, 0) + 1
    return members, groups
