"""Decisions about the validation of records as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.rpc import events
from mesh.validation.words import change_text


def changed(event: events.Event) -> Iterator[str]:
    return (f"validation: rule {change_text(each)}" for each in event.validation_rules_changed.changes)
