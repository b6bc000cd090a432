"""Offsets of clients and offsets of clusters, for topics whose log has parts on several clusters.

Theory of operation
1. The table says the parts of a log (`mesh.stitches`). The offset that clients see is the cluster's offset plus the
   shift of the part. A part ends where the next part starts, whatever its cluster has behind that offset.
2. A plan converts an offset once when it begins, and each offset of its answer once when it ends. In between all
   offsets are those of the clusters. Nothing of this is needed for a topic with one part and the cluster's own offsets.
3. A partition that a cluster has got after the cut has no older parts: its offsets are those of the cluster.
4. A request can name a topic in one way on each cluster: as the newest part there is called. An older part of another
   name counts as a part whose cluster is away.
5. If the topic on a cluster has another id than the part's, it was deleted and made anew: the part is lost. It counts
   as a part whose cluster is away, until control takes it out of the log.
6. The past of a fork is read by the name of the topic that it is from, so that all which holds for that topic's records
   (names, protection) holds for the past. It counts as a part whose cluster is away while a rule renames that topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from mesh.routing import Route
from mesh.stitches import LogPart
from mesh.transactions import LogPlace
from services.gateway.requests.records.fetch_sessions import Marks
from services.gateway.wire.schema import NO_UUID

if TYPE_CHECKING:
    from services.gateway.requests.memory import Memory
    from services.gateway.requests.plan import MeshView

UNKNOWN = -1
"""The offset that stands for none."""

NO_CLUSTER = ""


class Part(Enum):
    """The part that a request goes to."""

    OLD = "old"
    PRESENT = "present"
    PAST = "past"
    """That of the topic which a fork is from."""


class Stretch(NamedTuple):
    """One partition of one part."""

    cluster: str
    """`NO_CLUSTER` if no request can name the topic there."""
    topic: str
    """The topic's name there."""
    shift: int
    start: int
    """The first offset, as clients see it."""
    end: int | None
    """The start of the next part; None: the part is the present one."""
    present: int
    """The start of the present part."""
    is_first: bool
    is_past: bool = False
    """The records are those of the topic that the log is a fork of."""
    topic_id: bytes = b""
    """The cluster's id of the topic; empty if it is not known."""

    def asked_as(self, topic: str) -> str:
        """The name of this topic in requests about the part."""
        return self.topic if self.is_past else topic

    def place(self, partition: int) -> LogPlace:
        """The log on the cluster."""
        return LogPlace(self.cluster, self.topic, partition)

    def there(self, offset: int) -> int:
        """The cluster's offset for an offset of clients."""
        return offset - self.shift

    def shown(self, offset: int) -> int:
        """The offset of clients for an offset of the cluster."""
        return offset if offset < 0 else offset + self.shift

    @property
    def end_there(self) -> int | None:
        return None if self.end is None else self.end - self.shift

    def has(self, offset: int) -> bool:
        """Whether the part has this offset of clients."""
        return self.start <= offset and (self.end is None or offset < self.end)

    def shown_marks(self, marks: Marks) -> Marks:
        """The marks of the cluster, as clients see them.

        A client has to read on behind an old part, so the log does not end there: its high watermark is at least the
        start of the present part. So is its last stable offset, unless a transaction is open in the old part. The start
        of the log is known of the first part alone.
        """
        high, stable, log_start = (self.shown(offset) for offset in marks.numbers)
        if self.end is not None:
            high = UNKNOWN if high < 0 else self.present
            stable = self.present if stable >= self.end else stable
        if not self.is_first:
            log_start = UNKNOWN
        elif log_start >= 0:
            log_start = max(self.start, log_start if self.end is None else min(log_start, self.end))
        return Marks(high, stable, log_start)


Stretches = tuple[Stretch, ...]
"""The parts of one partition, the oldest first; empty: clients see the offsets of the topic's cluster."""


def stretches_of(parts: Sequence[LogPart], partition: int) -> Stretches:
    if not parts or not 0 <= partition < len(parts[-1].starts):
        return ()
    present, end = parts[-1].starts[partition], None
    found: list[Stretch] = []
    names: dict[str, str] = {}
    for part in reversed(parts):
        if partition >= len(part.starts):
            break
        start, shift = part.starts[partition], part.shifts[partition]
        is_named = part.is_past or names.setdefault(part.cluster, part.topic) == part.topic
        cluster = part.cluster if is_named else NO_CLUSTER
        if end is None or start < end:
            found.append(Stretch(cluster, part.topic, shift, start, end, present, False, part.is_past, part.topic_id))
            end = start
    found[-1] = found[-1]._replace(is_first=True)
    return () if len(found) == 1 and not found[0].shift else tuple(reversed(found))


def stretches(topic: str | bytes, partition: int, mesh: MeshView) -> Stretches:
    """The parts of a partition by the table of this view."""
    logs = mesh.memory.stitches.logs
    if not logs or not isinstance(topic, str) or topic not in logs:
        return ()
    route = mesh.table.route(topic)
    if route is None:
        return ()
    parts = stretches_of(logs[topic].up_to(route.stay), partition)
    return tuple(
        part
        if part.end is None or (_has_own_name(part, mesh) and _is_its_topic(part, topic, mesh))
        else part._replace(cluster=NO_CLUSTER)
        for part in parts
    )


def _is_its_topic(part: Stretch, topic: str, mesh: MeshView) -> bool:
    """Whether the cluster has the topic of the part, as far as is known, and not another one of its name."""
    cluster = mesh.clusters.get(part.cluster) if part.topic_id else None
    known = None if cluster is None else cluster.topics.get(part.asked_as(topic))
    return known is None or known.topic_id in (part.topic_id, NO_UUID)


def _has_own_name(part: Stretch, mesh: MeshView) -> bool:
    """Whether requests that name the past of a fork reach it: no rule gives its topic another name there."""
    route = mesh.table.route(part.topic) if part.is_past else None
    names = (
        {part.topic}
        if route is None
        else {
            stay.upstream_topic
            for stay in (route.stay, route.before)
            if stay is not None and stay.cluster == part.cluster
        }
    )
    names.add(mesh.memory.stitches.names.get(part.cluster, {}).get(part.topic, part.topic))
    return not part.is_past or names == {part.topic}


def is_stitched(topic: str, route: Route, memory: Memory) -> bool:
    """Whether offsets of a topic on this route may differ from those of the cluster."""
    log = memory.stitches.logs.get(topic)
    if log is None:
        return False
    parts = log.up_to(route.stay)
    return len(parts) > 1 or any(shift for part in parts for shift in part.shifts)


def present_parts(topic: str, route: Route, memory: Memory) -> tuple[Stretch | None, ...]:
    """The present part of each partition; empty: clients see the offsets of the topic's cluster."""
    if not is_stitched(topic, route, memory):
        return ()
    parts = memory.stitches.logs[topic].up_to(route.stay)
    of_partitions = (stretches_of(parts, partition) for partition in range(len(parts[-1].starts)))
    return tuple(found[-1] if found else None for found in of_partitions)


def at(parts: Iterable[Stretch], offset: int) -> Stretch | None:
    """The part that has this offset of clients; None: the offset is in front of the log."""
    return next((part for part in parts if part.has(offset)), None)


def covering(parts: Iterable[Stretch], of: Stretch, offset: int) -> Stretch | None:
    """The part on the same log as `of` that has this offset of the cluster: a topic may have come back there."""
    return next(
        (
            part
            for part in parts
            if (part.cluster, part.topic) == (of.cluster, of.topic) and offset >= 0 and part.has(part.shown(offset))
        ),
        None,
    )
