"""Waits for what a cluster was told to be seen: a controller answers before each broker has heard of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.clients.contract import Admin

SETTLED_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.05


async def settled_config(admin: Admin, topic: str, expected: Mapping[str, str]) -> Mapping[str, str]:
    """The topic's settings, once they contain these."""
    found: Mapping[str, str] = {}
    try:
        async with asyncio.timeout(SETTLED_SECONDS):
            while expected.items() - found.items():
                found = await admin.topic_config(topic)
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
    except TimeoutError:
        seen = {name: found.get(name) for name in expected}
        raise AssertionError(f"{topic} has {seen}, expected {dict(expected)}") from None
    return found
