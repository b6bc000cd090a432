"""Decisions about tenants as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.rpc import events
from mesh.tenants.words import change_text


def changed(event: events.Event) -> Iterator[str]:
    return (f"tenant {change_text(each)}" for each in event.tenants_changed.changes)
