"""Topics of lineage by one name each: record rules know places, clients know names; rules join both. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.routing import Place, RoutingTable
from services.control.domain.lineage.edges import Node, NodeKind, topic_at


def present_name(node: Node, table: RoutingTable) -> Node:
    """The node by the name that clients have for it now; a place without such a name stays."""
    place = _place_in(node)
    name = None if place is None else table.virtual_topic(*place)
    return node if name is None else Node(NodeKind.TOPIC, name)


def names_of(node: Node, table: RoutingTable) -> Iterator[Node]:
    """All nodes that are this one: a topic by its name, and by its place."""
    yield node
    place = place_of(node, table)
    if place is not None and topic_at(place) != node:
        yield topic_at(place)


def place_of(node: Node, table: RoutingTable) -> Place | None:
    """The place of a topic now; None if no rule leads from its name to a cluster, or the node is no topic."""
    if node.kind is not NodeKind.TOPIC:
        return None
    if (place := _place_in(node)) is not None:
        return place
    route = table.route(node.name)
    return None if route is None else Place(route.cluster, route.upstream_topic)


def _place_in(node: Node) -> Place | None:
    cluster, slash, topic = node.name.rpartition("/")
    return Place(cluster, topic) if slash and node.kind is NodeKind.TOPIC else None
