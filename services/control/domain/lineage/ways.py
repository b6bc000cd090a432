"""The way through lineage from one node: which edges come next, and where it ends. No I/O.

Theory of operation
1. A walk takes one step at a time. At each step its caller reads the edges of the nodes in `frontier`, by all names
   that these nodes have, and gives them to `take`.
2. An edge belongs to the walk once, with the distance of its nearer end. Rows that are the same edge under several
   names of a topic become one.
3. A walk ends at a node that the caller may not see, and at clients that may be of several applications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from mesh.routing import RoutingTable
from services.control.domain.lineage.applications import application_named
from services.control.domain.lineage.edges import Node, NodeKind
from services.control.domain.lineage.memory import Seen
from services.control.domain.lineage.places import names_of, present_name


class Direction(Enum):
    """The direction of a walk."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


@dataclass(slots=True)
class Walk:
    """A walk in one direction."""

    start: Node
    direction: Direction
    table: RoutingTable
    sees: Callable[[Node], bool]
    found: dict[tuple[Node, Node, str, str], tuple[int, Seen]] = field(default_factory=dict)
    """The edges, each with its distance."""
    hidden: set[Node] = field(default_factory=set)
    frontier: list[Node] = field(default_factory=list)
    _distance: int = 0
    _reached: set[Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.frontier = [self.start]
        self._reached = {self.start}

    def wanted(self) -> list[Node]:
        """The nodes whose edges are the next step."""
        return [name for node in self.frontier for name in names_of(node, self.table)]

    def take(self, edges: Iterable[Seen]) -> None:
        """Takes the edges of the next step."""
        reached: dict[Node, None] = {}
        for each in edges:
            edge = replace(
                each.edge,
                source=present_name(each.edge.source, self.table),
                target=present_name(each.edge.target, self.table),
            )
            there = edge.target if self.direction is Direction.DOWNSTREAM else edge.source
            if not self.sees(there):
                self.hidden.add(there)
                continue
            self._keep(replace(each, edge=edge))
            if there not in self._reached:
                self._reached.add(there)
                reached[there] = None
        self.frontier = [node for node in reached if not is_shared(node)]
        self._distance += 1

    def _keep(self, seen: Seen) -> None:
        edge = seen.edge
        key = (edge.source, edge.target, edge.kind.value, edge.rule)
        distance, before = self.found.get(key, (self._distance, seen))
        self.found[key] = distance, together(before, seen)


def together(one: Seen, other: Seen) -> Seen:
    """Two rows of one edge."""
    return Seen(one.edge, min(one.first, other.first), max(one.last, other.last), present=one.present or other.present)


def is_shared(node: Node) -> bool:
    """Whether the node stands for clients that may be of several applications."""
    application = application_named(node.name) if node.kind is NodeKind.APPLICATION else None
    return application is not None and application.is_shared
