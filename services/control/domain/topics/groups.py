"""Consumer groups that several clusters know: which of them is the group's home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class GroupState(Enum):
    """The state of a group, as a coordinator says."""

    UNKNOWN = "unknown"
    STABLE = "stable"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    ASSIGNING = "assigning"
    RECONCILING = "reconciling"
    NOT_READY = "not ready"
    EMPTY = "empty"
    DEAD = "dead"


class GroupType(Enum):
    """The protocol of a group."""

    UNKNOWN = "unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


WITHOUT_MEMBERS = frozenset({GroupState.UNKNOWN, GroupState.EMPTY, GroupState.DEAD})


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group as one cluster lists it; a cluster that only keeps offsets coordinates nothing."""

    state: GroupState
    type: GroupType
    is_coordinated: bool


@dataclass(frozen=True, slots=True)
class MeshGroup:
    """A group of the mesh."""

    name: str
    home: str
    """Empty: no cluster coordinates it."""
    there: SeenGroup
    """As its home lists it; without a home, as any cluster does."""
    clusters: tuple[str, ...] = field(default=())
    """All that know it."""


def groups_of(listed: Mapping[str, Mapping[str, SeenGroup]], homes: Mapping[str, str]) -> dict[str, MeshGroup]:
    """The groups by name. `listed`: cluster -> groups; `homes`: the clusters that rules name for groups."""
    by_name: dict[str, dict[str, SeenGroup]] = {}
    for cluster, groups in listed.items():
        for name, seen in groups.items():
            by_name.setdefault(name, {})[cluster] = seen
    return {name: _group(name, by_name[name], homes.get(name, "")) for name in sorted(by_name)}


def _group(name: str, seen: Mapping[str, SeenGroup], named: str) -> MeshGroup:
    def claim(cluster: str) -> tuple[bool, bool, bool]:
        there = seen[cluster]
        return there.is_coordinated and there.state not in WITHOUT_MEMBERS, cluster == named, there.is_coordinated

    best = max(sorted(seen), key=claim)
    is_home = seen[best].is_coordinated or best == named
    return MeshGroup(name, best if is_home else "", seen[best], tuple(sorted(seen)))
