"""Before a move: a topic of the same name on the target may have records. They have to be the beginning of the log.

A copy of the whole log goes on from the end of its target. A copying move that finds other records there fails, and the
topic is where it was. A move that has stitched already would leave a stitched log, so control compares before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from mesh.routing import Place, RoutingTable
from mesh.routing.codec import cluster_to_proto
from mesh.stitches import LogPart
from mesh.topic_logs.brokers import Brokers, CopySetbackError
from mesh.topic_logs.evidence import visible
from mesh.topic_logs.parts import PartedLog, Source
from services.control.domain.errors import NotAllowed, Unavailable

AT_ONCE = 16
"""Partitions that are compared at the same time."""
CLIENT_ID = "mesh.comparison"


async def refuse_other_records(
    topic: str, table: RoutingTable, source: Place, target: Place, parts: Sequence[LogPart]
) -> None:
    """Refuses a target whose records are not the beginning of the log. `parts`: of the log; none: it is at `source`."""
    names = dict.fromkeys([source.cluster, target.cluster, *(part.cluster for part in parts)])
    try:
        async with AsyncExitStack() as connections:
            brokers = {
                name: await connections.enter_async_context(
                    Brokers(cluster_to_proto(table.clusters[name]).spec, CLIENT_ID)
                )
                for name in names
            }
            there = brokers[target.cluster]
            here: Source = PartedLog(parts, brokers) if parts else brokers[source.cluster]
            await here.partitions(source.upstream_topic)
            room = asyncio.Semaphore(AT_ONCE)

            async def compared(number: int) -> str:
                async with room:
                    return await _difference(here, source.upstream_topic, there, target.upstream_topic, number)

            numbers = await there.partitions(target.upstream_topic)
            problems = list(filter(None, await asyncio.gather(*map(compared, numbers))))
    except CopySetbackError as error:
        raise Unavailable("CLUSTER_UNREACHABLE", f"{error}; the move does not begin") from None
    if problems:
        text = (
            f"topic {target.upstream_topic!r} on {target.cluster!r} has records that are not the beginning of the log "
            f"of topic {topic!r}: {problems[0]}; delete that topic, or choose another cluster"
        )
        raise NotAllowed("TARGET_HAS_RECORDS", f"topics/{topic}", text)


async def _difference(here: Source, topic: str, there: Brokers, target_topic: str, number: int) -> str:
    start, end = await there.range(target_topic, number)
    if not end:
        return ""
    first, last = await here.range(topic, number)
    where = f"partition {number}"
    if end > last:
        return f"{where} ends at {end}, and the log at {last}"
    if end < first:
        return f"{where} ends at {end}, and the log begins at {first}"
    if start == end or end == first:
        return ""
    known, found = await asyncio.gather(
        here.fetch(topic, number, end - 1, 1, 0), there.fetch(target_topic, number, end - 1, 1, 0)
    )
    if visible(end - 1, known) != visible(end - 1, found):
        return f"{where} has another record at offset {end - 1}"
    return ""
