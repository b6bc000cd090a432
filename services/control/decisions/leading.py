"""The loop of what control sees to by itself: a look every few seconds, while this control leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from services.control.store.journal import Journal


async def looks(journal: Journal, pause_s: Callable[[], float]) -> AsyncIterator[None]:
    """Comes once after each pause, for ever; not while another control leads."""
    while True:
        await asyncio.sleep(pause_s())
        if not journal.why_not_leading:
            yield
