"""Lineage in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from mesh.rpc import lineage as pb
from meshctl.output import age, count
from meshctl.traffic import size

KINDS = {
    pb.LINEAGE_NODE_KIND_TOPIC: "topic",
    pb.LINEAGE_NODE_KIND_GROUP: "group",
    pb.LINEAGE_NODE_KIND_APPLICATION: "application",
    pb.LINEAGE_NODE_KIND_BACKEND: "backend",
}
STALE_S = 60
"""Seconds after which the last look of control is reported."""


def node_text(of: pb.LineageNode) -> str:
    """ "topic orders (c1)"."""
    kind = KINDS.get(of.kind, "node")
    if of.kind == pb.LINEAGE_NODE_KIND_TOPIC:
        return f"{kind} {of.name}" if "/" in of.name else f"{kind} {of.name} ({of.cluster or 'no cluster'})"
    if of.kind == pb.LINEAGE_NODE_KIND_APPLICATION and not of.client:
        return f"{kind} of {of.principal}" + (" (unnamed clients)" if of.shared else "")
    return f"{kind} {of.name}"


def rate_text(of: pb.LineageEdge) -> str:
    """ "12.5 records, 1.2 kB"; "-" if nobody has counted the traffic."""
    if not of.HasField("records_per_second"):
        return "-"
    return f"{of.records_per_second:,.1f} records, {size(of.bytes_per_second)}"


def gathering(of: pb.LineageGathering, now: datetime) -> Iterator[str]:
    """Why edges may be missing, a sentence each."""
    if of.problem:
        yield f"Edges may be missing: {of.problem}."
    if of.left_out:
        yield f"{count(of.left_out, 'edge')} had no room: LINEAGE_EDGES of control is the bound."
    if of.HasField("time") and (now - of.time.ToDatetime(now.tzinfo)).total_seconds() > STALE_S:
        yield f"Control looked last {age(of.time, now)}."
