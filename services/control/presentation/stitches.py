"""The sentences of decisions about stitched logs."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.rpc import events
from mesh.stitches.words import log_change_text


def changed(event: events.Event) -> Iterator[str]:
    return map(log_change_text, event.stitched_logs_changed.changes)
