"""The sentences of decisions about stitched logs."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.rpc import events, stitches


def changed(event: events.Event) -> Iterator[str]:
    return (f"the log of topic {each.topic} {_log_text(each)}" for each in event.stitched_logs_changed.changes)


def _log_text(change: stitches.StitchedLogChange) -> str:
    if not change.HasField("log"):
        return "is the log of its cluster"
    return "is on " + ", then ".join(part.cluster_name for part in change.log.parts)
