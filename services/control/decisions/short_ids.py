"""Ids of orders, replays and schedules: short, because users type them."""

from __future__ import annotations

import secrets
from collections.abc import Container


def new_id(collection: str, *known: Container[str]) -> str:
    """An id that no known resource of the collection has."""
    while True:
        identifier = secrets.token_hex(4)
        if not any(f"{collection}/{identifier}" in names for names in known):
            return identifier
