"""The use of the mesh by clients, as gateways and clusters report it, and the clients that a rule change touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mesh.routing import ClientIdentity, Place, RoutingTable

Readers = Mapping[str, Mapping[str, Iterable[str]]]
"""Cluster -> group -> topics there for which the group has committed offsets."""


@dataclass(frozen=True, slots=True)
class ClientUse:
    """Clients of one kind at one gateway, and the names that they have used lately."""

    gateway: str
    identity: ClientIdentity
    connections: int = 1
    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    transactional_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Clients that a gateway has and does not list."""

    gateway: str
    listed: int
    """Kinds of clients that the gateway lists."""
    kinds: int
    """All kinds; 0 if the gateway does not tell them."""
    connections: int
    """Connections of clients that are not listed."""


@dataclass(frozen=True, slots=True)
class HomeMove:
    """A group or a transactional id in use whose coordinator would be on another cluster."""

    name: str
    source: str
    target: str
    is_group: bool = True


def home_moves(
    before: RoutingTable, after: RoutingTable, readers: Readers, uses: Sequence[ClientUse]
) -> list[HomeMove]:
    """Home moves by rules alone: a group without a rule stays on the cluster of its members."""
    groups = {group for there in readers.values() for group in there} | {group for use in uses for group in use.groups}
    found: list[HomeMove] = []
    for group in sorted(groups):
        old, new = before.group_rule(group), after.group_rule(group)
        if new is not None and (old is None or old.target_cluster != new.target_cluster):
            homes = sorted(cluster for cluster, there in readers.items() if group in there)
            source = old.target_cluster if old is not None else ", ".join(homes)
            if source != new.target_cluster:
                found.append(HomeMove(group, source, new.target_cluster))
    for transactional_id in sorted({each for use in uses for each in use.transactional_ids}):
        source, target = transaction_home(before, transactional_id), transaction_home(after, transactional_id)
        if source != target:
            found.append(HomeMove(transactional_id, source, target, is_group=False))
    return found


@dataclass(frozen=True, slots=True)
class Affected:
    """Clients that use topics which would be on another cluster for them, or have another name there."""

    use: ClientUse
    topics: Sequence[str] = ()


def affected(before: RoutingTable, after: RoutingTable, uses: Iterable[ClientUse]) -> list[Affected]:
    """Connected clients that would notice the change, each with its topics that move."""
    found: list[Affected] = []
    for use in uses:
        old, new = before.for_client(use.identity), after.for_client(use.identity)
        moving = [topic for topic in sorted(use.topics) if _place(old, topic) != _place(new, topic)]
        if moving:
            found.append(Affected(use, tuple(moving)))
    return found


def _place(table: RoutingTable, topic: str) -> Place | None:
    route = table.route(topic)
    return None if route is None else Place(route.cluster, route.upstream_topic)


def transaction_home(table: RoutingTable, transactional_id: str) -> str:
    """The cluster that coordinates the transactional id; empty in a mesh without clusters."""
    rule = table.transaction_rule(transactional_id)
    if rule is not None:
        return rule.target_cluster
    return table.home.name if table.home is not None else ""
