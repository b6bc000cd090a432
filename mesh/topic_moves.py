"""The way of a move as operators see it: a move with two cuts has a place in between, on its target cluster."""

from __future__ import annotations

from mesh.rpc import topic_moves


def origin_of(move: topic_moves.MoveWithRecords) -> str:
    """The cluster from which the topic moves away."""
    if move.HasField("stitch"):
        return move.stitch.way.source_cluster
    return move.copy.parts[0].cluster_name if move.copy.parts else move.copy.source_cluster
