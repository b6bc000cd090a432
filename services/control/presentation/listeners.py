"""Decisions about listeners of gateways as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.listeners.words import change_text
from mesh.rpc import events


def changed(event: events.Event) -> Iterator[str]:
    return (f"listener {change_text(each)}" for each in event.listeners_changed.changes)
