"""The certificate of a stitched move: the old part has its end, and the new part begins where the map says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mesh.routing import RoutingTable
from mesh.rpc import topic_moves
from services.control.domain.log_ranges import LogRange
from services.control.domain.stitches.logs import in_force, log_of


def evidence_of(move: topic_moves.MoveWithRecords) -> Iterator[topic_moves.TopicMoveEvidence]:
    """The map of the cut."""
    for cut in move.cuts:
        yield topic_moves.TopicMoveEvidence(
            partition=cut.partition, start=cut.start, end=cut.end, base=cut.base, client_offset=cut.client_offset
        )


def stitched_differences(
    move: topic_moves.MoveWithRecords,
    source: Mapping[int, LogRange],
    target: Mapping[int, LogRange],
    table: RoutingTable,
    *,
    goes_on: bool,
) -> Iterator[str]:
    """Differences from what the move left. `source`, `target`: both logs now; `goes_on`: see `has_gone_on`."""
    copy = move.copy
    for cut in move.cuts:
        old, new = source.get(cut.partition), target.get(cut.partition)
        if old is not None and (old.end < cut.end or (old.end > cut.end and not goes_on)):
            where = f"{copy.topic}-{cut.partition} on {copy.source_cluster!r}"
            yield f"{where} ends at {old.end}, and the cut is at {cut.end}"
        if new is not None and new.end < cut.base:
            yield (
                f"{copy.target_topic}-{cut.partition} on {copy.target_cluster!r} ends at {new.end}, and the new part "
                f"begins at {cut.base}"
            )
        for name, log in ((copy.source_cluster, old), (copy.target_cluster, new)):
            if log is None:
                yield f"partition {cut.partition} was not found on {name!r}"
    if not goes_on:
        yield from _other_map(move, table)


def _other_map(move: topic_moves.MoveWithRecords, table: RoutingTable) -> Iterator[str]:
    """Differences between the map of the cut and the last part of the log, by which gateways shift offsets."""
    route, cluster = table.route(move.spec.topic), move.copy.target_cluster
    parts = () if route is None else in_force(log_of(table, move.spec.topic), route.stay)
    if not parts or parts[-1].cluster != cluster:
        yield f"the log of topic {move.spec.topic!r} does not end with a part on {cluster!r}"
        return
    for cut, start, shift in zip(move.cuts, parts[-1].starts, parts[-1].shifts, strict=False):
        if (start, start - shift) != (cut.client_offset, cut.base):
            yield (
                f"partition {cut.partition} of the new part begins at {start - shift}, which clients see as {start}; "
                f"at the cut they were {cut.base} and {cut.client_offset}"
            )
