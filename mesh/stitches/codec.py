"""Stitched logs from the messages of stitches.proto, and back."""

from __future__ import annotations

from mesh.rpc import stitches
from mesh.stitches.log import LogPart, Policy, StitchedLog


def log_from_proto(message: stitches.StitchedLog) -> StitchedLog:
    parts = tuple(map(part_from_proto, message.parts))
    return StitchedLog(message.topic, parts, message.fork_of, message.past_bytes_per_second)


def log_to_proto(log: StitchedLog) -> stitches.StitchedLog:
    return stitches.StitchedLog(
        topic=log.topic,
        parts=map(_part_to_proto, log.parts),
        fork_of=log.fork_of,
        past_bytes_per_second=log.past_bytes_per_second,
    )


def policy_from_proto(message: stitches.StitchPolicy | None) -> Policy:
    """None: there has been no decision."""
    return Policy() if message is None else Policy(map(log_from_proto, message.logs), message.revision)


def part_from_proto(message: stitches.LogPart) -> LogPart:
    starts, shifts = (tuple(getattr(each, name) for each in message.partitions) for name in ("start", "shift"))
    return LogPart(
        message.cluster_name, message.topic, message.visit, starts, shifts, message.is_past, message.topic_id
    )


def _part_to_proto(part: LogPart) -> stitches.LogPart:
    partitions = [
        stitches.LogPartPartition(start=start, shift=shift)
        for start, shift in zip(part.starts, part.shifts, strict=True)
    ]
    return stitches.LogPart(
        cluster_name=part.cluster,
        topic=part.topic,
        visit=part.visit,
        partitions=partitions,
        is_past=part.is_past,
        topic_id=part.topic_id,
    )
