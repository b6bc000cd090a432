"""Decisions about the protection of values as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.protection.words import change_text
from mesh.rpc import events


def changed(event: events.Event) -> Iterator[str]:
    return (f"protection: rule {change_text(each)}" for each in event.protection_rules_changed.changes)
