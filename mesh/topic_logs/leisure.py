"""Work that nobody waits for, next to work that somebody waits for: after each piece comes a rest.

A thread that reads logs takes a core for as long as it is let. On the same machine run brokers and gateways, whose
clients would notice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

RESTS: Final = 3.0
"""Seconds of rest for a second of work: a quarter of a core, or less on a busy machine, where a piece takes longer."""


class Leisure:
    """Shared by all who work at one thing: one piece at a time."""

    def __init__(self, rests: float = RESTS) -> None:
        self._rests = rests
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """The body of the context is one piece of work, which should take some milliseconds."""
        async with self._turn:
            began = time.monotonic()
            yield
            await asyncio.sleep(self._rests * (time.monotonic() - began))
