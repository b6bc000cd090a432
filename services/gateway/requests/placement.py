"""Where partitions live right now: owner cluster by the table, leader by what the cluster said last.

`locate` is what every API that goes to leaders starts with: Produce, Fetch, ListOffsets.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from services.gateway.requests.plan import Command, MeshView, Unreachable, refresh
from services.gateway.wire.errors import ErrorCode

T = TypeVar("T")

LEADER_ERRORS = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}
)
"""A broker that answers one of these tells that what we believe about the topic is old."""


class Place(NamedTuple):
    cluster: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class Wanted(Generic[T]):
    """One partition of a request, with whatever the request says about it."""

    topic: str
    partition: int
    item: T


@dataclass(slots=True)
class Located(Generic[T]):
    """The partitions of a request by place, in the client's order, and those that have none with the reason."""

    places: dict[Place, list[Wanted[T]]]
    homeless: list[tuple[Wanted[T], ErrorCode]]


def locate(mesh: MeshView, wanted: Iterable[Wanted[T]]) -> Generator[Command, Any, Located[T]]:
    """Find each partition's leader; clusters whose metadata lacks one are asked once.

    No rule: UNKNOWN_TOPIC_OR_PARTITION. The cluster does not have it: the same. The cluster is unreachable or the
    partition has no leader now: NOT_LEADER_OR_FOLLOWER, upon which every client asks for metadata and tries again.
    """
    wanted = list(wanted)
    clusters = {topic: mesh.table.cluster_of(topic) for topic in {w.topic for w in wanted}}
    unknown: dict[str, set[str]] = {}
    for w in wanted:
        cluster = clusters[w.topic]
        if cluster is not None and mesh.clusters[cluster].leader(w.topic, w.partition) is None:
            unknown.setdefault(cluster, set()).add(w.topic)
    unreachable: set[str] = set()
    for cluster, topics in unknown.items():
        if isinstance((yield from refresh(cluster, sorted(topics))), Unreachable):
            unreachable.add(cluster)
    found: Located[T] = Located({}, [])
    for w in wanted:
        cluster = clusters[w.topic]
        leader = None if cluster is None else mesh.clusters[cluster].leader(w.topic, w.partition)
        if cluster is not None and leader is not None:
            found.places.setdefault(Place(cluster, leader), []).append(w)
        elif cluster is None:
            found.homeless.append((w, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            count = mesh.clusters[cluster].partition_count(w.topic)
            exists = cluster in unreachable or (count is not None and w.partition < count)
            found.homeless.append(
                (w, ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            )
    return found
