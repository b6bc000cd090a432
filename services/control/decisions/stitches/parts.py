"""Answers about the parts of a topic's log: their places, what is left of them, and until when they need a cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from mesh.routing import Place, RoutingTable
from mesh.rpc import stitches, topics
from services.control.domain.errors import Unknown
from services.control.domain.log_ranges import LogRange
from services.control.domain.stitches.logs import in_force, log_of, whole
from services.control.domain.stitches.retention import TIME, Retention
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.log_sizes import log_sizes


class PartAnswers:
    """Asks the clusters of the parts."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections

    async def of(self, topic: str) -> topics.GetTopicPartsResponse:
        """The parts of a topic's log; one part if its log is not stitched."""
        table = self._journal.view.state.effective
        route = table.route(topic)
        if route is None:
            raise Unknown(f"topics/{topic}", f"topic {topic!r} lives nowhere: no rule leads to a registered cluster")
        log = log_of(table, topic)
        count = len(in_force(log, route.stay))
        parts = log.parts[:count] if log is not None and count else [whole(route.stay)]
        places = Counter((each.cluster_name, each.topic) for each in parts)
        answer = topics.GetTopicPartsResponse()
        told = await asyncio.gather(
            *(self._told(table, parts, number, places) for number in range(len(parts))), return_exceptions=True
        )
        for each, found in zip(parts, told, strict=True):
            if isinstance(found, UnreachableError):
                answer.problems.append(str(found))
                answer.parts.append(_shape(each))
            elif isinstance(found, BaseException):
                raise found
            else:
                answer.parts.append(found)
            if log is not None and each.is_past:
                answer.parts[-1].past_of = log.fork_of
        return answer

    async def _told(
        self, table: RoutingTable, parts: Sequence[stitches.LogPart], number: int, places: Mapping[tuple[str, str], int]
    ) -> topics.TopicPart:
        part = parts[number]
        place = Place(part.cluster_name, part.topic)
        cluster = table.clusters.get(place.cluster)
        if cluster is None:
            raise UnreachableError(f"cluster {place.cluster!r} is not registered any more")
        count = await self._connections.partitions_of(cluster, part.topic)
        shape = _shape(part)
        if not count:
            shape.expiry = f"{place.cluster} has no such topic"
            return shape
        logs, settings = await asyncio.gather(
            self._connections.log_ranges(cluster, {part.topic: count}, known_only=True), self._retention(table, parts)
        )
        following = parts[number + 1] if number + 1 < len(parts) else None
        _add_partitions(shape, part, following, logs[part.topic])
        if following is None:
            shape.expiry = "clients write there"
        else:
            shape.end_time.CopyFrom(following.begin_time)
            is_left = any(each.start < each.end for each in shape.partitions)
            retention = Retention.of(settings, following.begin_time.ToDatetime(), is_left=is_left)
            shape.expiry = retention.sentence
            if retention.latest is not None:
                shape.expire_time.FromDatetime(retention.latest)
        if places[place] == 1 and not part.is_past and (size := await self._size(table, place, count)) is not None:
            shape.size_bytes = size
        return shape

    async def _retention(self, table: RoutingTable, parts: Sequence[stitches.LogPart]) -> Mapping[str, str]:
        """That of the present part holds over all parts. Empty if its cluster is away."""
        present = parts[-1]
        cluster = table.clusters[present.cluster_name]
        try:
            found = await self._connections.effective_settings(cluster, [present.topic], (TIME,))
        except UnreachableError:
            return {}
        return found.get(present.topic, {})

    async def _size(self, table: RoutingTable, place: Place, partitions: int) -> int | None:
        try:
            sizes = await log_sizes(table.clusters[place.cluster], {place.upstream_topic: partitions})
        except UnreachableError:  # an old cluster does not tell sizes
            return None
        return sizes.get(place.upstream_topic)


def _shape(part: stitches.LogPart) -> topics.TopicPart:
    return topics.TopicPart(cluster=part.cluster_name, upstream_topic=part.topic, visit=part.visit)


def _add_partitions(
    shape: topics.TopicPart,
    part: stitches.LogPart,
    following: stitches.LogPart | None,
    there: Mapping[int, LogRange],
) -> None:
    own = dict(enumerate(part.partitions))
    unshifted = stitches.LogPartPartition()
    for number, log in sorted(there.items()):
        mapped = own.get(number, unshifted)
        end = log.end + mapped.shift if following is None else following.partitions[number].start
        start = min(end, max(mapped.start, log.start + mapped.shift))
        shape.partitions.add(partition=number, start=start, end=end)
