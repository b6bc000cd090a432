"""Decisions about quotas as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from mesh.quotas import DEFAULT, Entity, Limit
from mesh.quotas.words import change_text
from mesh.rpc import events


def changed(event: events.Event) -> Iterator[str]:
    return (f"quota: {change_text(each)}" for each in event.quotas_changed.changes)


def explanation(limit: Limit) -> str:
    """The quota, and the clients that share it."""
    return f"{limit.quota}, shared by {_sharers(limit)}"


def _sharers(limit: Limit) -> str:
    _, user, client_id, address = limit.sharers
    entity = Entity(user, client_id, address)
    named = (limit.quota.entity.user, limit.quota.entity.client_id, limit.quota.entity.ip)
    by_default = ", as the default says" if DEFAULT in named else ""
    return f"all connections of {entity}{by_default}"
