"""Offsets of share groups in stitched logs: the end without all that the group has not settled in any part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mesh.routing import RoutingTable
from mesh.stitches.log import LogPart
from services.control.domain.stitches.logs import end_of, in_force, log_of, logs_of

Offsets = Mapping[str, Mapping[str, Mapping[tuple[str, int], int]]]
"""Cluster -> group -> topic there and partition -> the end there without the lag."""


def over_parts(table: RoutingTable, shares: Collection[str], offsets: Offsets) -> dict[str, dict[str, dict[int, int]]]:
    """Stitched topic -> share group -> partition -> offset, as clients see it."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for topic in logs_of(table) if shares else ():
        route = table.route(topic)
        parts = () if route is None else in_force(log_of(table, topic), route.stay)
        own = [part for part in parts if not part.is_past]
        for group in shares if own else ():
            of_group = {
                number: offset
                for number in range(len(own[-1].shifts))
                if (offset := _offset(own, number, group, offsets)) is not None
            }
            if of_group:
                found.setdefault(topic, {})[group] = of_group
    return found


def _offset(parts: Sequence[LogPart], partition: int, group: str, offsets: Offsets) -> int | None:
    """None if no cluster tells one. A cluster has one state of the group for all of its parts."""
    present = parts[-1]
    known = _told(present, partition, group, offsets)
    offset = present.starts[partition] if known is None else known + present.shifts[partition]
    is_known, places = known is not None, {(present.cluster, present.topic)}
    for number in range(len(parts) - 2, -1, -1):
        part = parts[number]
        if (part.cluster, part.topic) in places or partition >= len(part.shifts):
            continue
        places.add((part.cluster, part.topic))
        told = _told(part, partition, group, offsets)
        if told is not None:
            is_known = True
            offset -= max(0, end_of(parts, number, partition) - told)
    return offset if is_known else None


def _told(part: LogPart, partition: int, group: str, offsets: Offsets) -> int | None:
    return offsets.get(part.cluster, {}).get(group, {}).get((part.topic, partition))
