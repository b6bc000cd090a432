"""Topics of all clusters by the names that clients know, and the groups that read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from mesh.routing import Place, RoutingTable
from services.control.domain.log_ranges import LogRange
from services.control.domain.rules.checks import INTERNAL_PREFIX
from services.control.domain.rules.effects import OffsetKeepers
from services.control.domain.stitches.share_offsets import over_parts

Committed = Mapping[str, Mapping[str, Mapping[tuple[str, int], int]]]
"""Cluster -> group -> topic there and partition -> committed offset."""
Reading = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Topic, as clients know it -> group -> partition -> committed offset."""


class Order(Enum):
    """The order of a list."""

    NAME = "name"
    CLUSTER = "cluster"
    PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a topic; `own`: it was made on the topic itself."""

    name: str
    value: str
    own: bool


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """A topic that clients can reach."""

    name: str
    place: Place
    partitions: int
    rule_id: str

    def key(self, order: Order) -> str:
        """Sorts like the order."""
        match order:
            case Order.NAME:
                return self.name
            case Order.CLUSTER:
                return f"{self.place.cluster} {self.name}"
            case Order.PARTITIONS:
                return f"{10**9 - self.partitions:010d} {self.name}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The conditions of a list; an empty one lets every topic through."""

    prefix: str = ""
    part: str = ""
    cluster: str = ""
    names: frozenset[str] = frozenset()

    def lets_through(self, topic: SeenTopic) -> bool:
        return (
            topic.name.startswith(self.prefix)
            and self.part in topic.name
            and self.cluster in ("", topic.place.cluster)
            and (not self.names or topic.name in self.names)
        )


def seen_topic(table: RoutingTable, place: Place, partitions: int) -> SeenTopic | None:
    """The topic at a place; None if no client's name leads there."""
    name = table.virtual_topic(place.cluster, place.upstream_topic)
    route = None if name is None else table.route(name)
    if name is None or route is None:
        return None
    return SeenTopic(name, place, partitions, route.rule.rule_id)


def is_internal(upstream_topic: str) -> bool:
    return upstream_topic.startswith(INTERNAL_PREFIX)


def reading(
    table: RoutingTable, committed: Committed, shares: Collection[str] = ()
) -> dict[str, dict[str, dict[int, int]]]:
    """The offsets that members use. Offsets that a move left on another cluster are not among them.

    `shares`: the share groups, which have offsets on the clusters of all parts of a stitched log.
    """
    keepers = OffsetKeepers(table)
    found: dict[str, dict[str, dict[int, int]]] = {}
    for cluster, group, upstream_topic, partition, offset in _flat(committed):
        topic = _topic_of(table, keepers, group, Place(cluster, upstream_topic))
        if topic is not None:
            found.setdefault(topic, {}).setdefault(group, {})[partition] = offset
    for topic, readers in over_parts(table, shares, committed).items():
        found.setdefault(topic, {}).update(readers)
    return found


def _flat(committed: Committed) -> Iterator[tuple[str, str, str, int, int]]:
    for cluster, groups in committed.items():
        for group, offsets in groups.items():
            for (topic, partition), offset in offsets.items():
                yield cluster, group, topic, partition, offset


def _topic_of(table: RoutingTable, keepers: OffsetKeepers, group: str, kept: Place) -> str | None:
    """The topic whose offsets the group keeps at this place; None if members look elsewhere for them."""
    for name in dict.fromkeys((table.virtual_topic(kept.cluster, kept.upstream_topic), kept.upstream_topic)):
        route = None if name is None else table.route(name)
        if name is None or route is None:
            continue
        if keepers.place(group, name, Place(route.cluster, route.upstream_topic)) == kept:
            return name
    return None


def lag_of(offsets: Mapping[int, int], log: Mapping[int, LogRange]) -> int:
    """Records between committed offsets and the ends; a partition without a known end does not count."""
    return sum(
        max(0, log[partition].end - max(offset, log[partition].start)) for partition, offset in _known(offsets, log)
    )


def _known(offsets: Mapping[int, int], log: Mapping[int, LogRange]) -> Iterable[tuple[int, int]]:
    return ((partition, offset) for partition, offset in offsets.items() if partition in log)
