"""The current place of partitions: the owner cluster by the table, the leader by the cluster's last answer.

Every API that goes to leaders begins with `locate`: Produce, Fetch, ListOffsets.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from services.gateway.requests.plan import Command, MeshView, Unreachable, refresh
from services.gateway.wire.errors import ErrorCode

T = TypeVar("T")

LEADER_ERRORS = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""A broker that answers with one of these shows that the gateway's knowledge of the topic is old."""

NOWHERE_ELSE: Mapping[tuple[str, int], str] = {}


class Place(NamedTuple):
    cluster: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class Wanted(Generic[T]):
    """One partition of a request, with the request's data about it."""

    topic: str
    partition: int
    item: T
    cluster: str | None = None
    """The cluster to ask; None: the topic's owner."""


@dataclass(slots=True)
class Located(Generic[T]):
    """The partitions of a request by place, in the client's order; and those without a place, with the reason."""

    places: dict[Place, list[Wanted[T]]]
    homeless: list[tuple[Wanted[T], ErrorCode]]


def locate(mesh: MeshView, wanted: Iterable[Wanted[T]]) -> Generator[Command, Any, Located[T]]:
    """Finds each partition's leader; a cluster whose metadata lacks a leader is asked once.

    For the errors of partitions without a leader see `homes`.
    """
    wanted = list(wanted)
    elsewhere = {(w.topic, w.partition): w.cluster for w in wanted if w.cluster is not None}
    places, errors = yield from homes(mesh, [(w.topic, w.partition) for w in wanted], elsewhere)
    found: Located[T] = Located({}, [])
    for w in wanted:
        place = places.get((w.topic, w.partition))
        if place is not None:
            found.places.setdefault(place, []).append(w)
        else:
            found.homeless.append((w, errors[w.topic, w.partition]))
    return found


def homes(
    mesh: MeshView, slots: Sequence[tuple[str, int]], elsewhere: Mapping[tuple[str, int], str] = NOWHERE_ELSE
) -> Generator[Command, Any, tuple[dict[tuple[str, int], Place], dict[tuple[str, int], ErrorCode]]]:
    """The place of each partition, or the error of a partition without one.

    `elsewhere`: the clusters of partitions that are not wanted from their topic's owner. A cluster whose metadata lacks
    a leader is asked once.

    No rule: UNKNOWN_TOPIC_OR_PARTITION. The cluster does not have the partition: the same. The cluster is unreachable
    or the partition has no leader now: NOT_LEADER_OR_FOLLOWER, upon which every client asks for metadata and tries
    again.
    """
    places, lost = _led(mesh, slots, elsewhere)
    if not lost:
        return places, {}
    errors: dict[tuple[str, int], ErrorCode] = {}
    unknown: dict[str, set[str]] = {}
    for (topic, _), cluster in lost.items():
        if cluster is not None:
            unknown.setdefault(cluster, set()).add(topic)
    unreachable = unknown.keys() - mesh.clusters.keys()
    for cluster, topics in unknown.items():
        if cluster not in unreachable and isinstance((yield from refresh(cluster, sorted(topics))), Unreachable):
            unreachable.add(cluster)
    again, still_lost = _led(mesh, list(lost), elsewhere)
    for (topic, partition), owner in still_lost.items():
        count = None if owner is None or owner in unreachable else mesh.clusters[owner].partition_count(topic)
        exists = owner in unreachable or (count is not None and partition < count)
        errors[topic, partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return places | again, errors


def _led(
    mesh: MeshView, slots: Iterable[tuple[str, int]], elsewhere: Mapping[tuple[str, int], str]
) -> tuple[dict[tuple[str, int], Place], dict[tuple[str, int], str | None]]:
    """Partitions with a leader as far as is known, and the others with their cluster (None: no rule)."""
    places: dict[tuple[str, int], Place] = {}
    lost: dict[tuple[str, int], str | None] = {}
    place: Place | None = None
    topic: str | None = None
    cluster: str | None = None
    leaders: tuple[int | None, ...] = ()
    for slot in slots:
        if slot[0] != topic or elsewhere:  # most requests name the partitions of a topic one after the other
            topic = slot[0]
            cluster = elsewhere[slot] if slot in elsewhere else mesh.table.cluster_of(topic)
            known = None if cluster is None else mesh.clusters.get(cluster)
            leaders = () if known is None else known.leaders(topic)
        leader = leaders[slot[1]] if 0 <= slot[1] < len(leaders) else None
        if cluster is None or leader is None:
            lost[slot] = cluster
        else:
            if place is None or place.broker_id != leader or place.cluster != cluster:
                place = Place(cluster, leader)
            places[slot] = place
    return places, lost
