"""The sentences of decisions about rehearsals."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.rehearsals.words import change_text
from mesh.rpc import events


def changed(event: events.Event) -> Iterator[str]:
    return (f"rehearsal of {change_text(each)}" for each in event.rehearsals_changed.changes)
