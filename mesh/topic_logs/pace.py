"""A bound for the bytes that a copy moves in a second."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Final

AT_ONCE_S: Final = 0.1
"""Seconds of the rate that go in one write: a small rate stays even."""


class Pace:
    """Shared by the partitions of a copy."""

    def __init__(self, bytes_per_second: float = 0.0) -> None:
        """0: without a bound."""
        self._rate = bytes_per_second
        self.at_once = bytes_per_second * AT_ONCE_S or math.inf
        """Bytes that one write should have at most."""
        self._free_at = 0.0

    async def take(self, size: int) -> None:
        """Returns when so many bytes may go."""
        if not self._rate:
            return
        now = time.monotonic()
        wait = max(0.0, self._free_at - now)
        self._free_at = max(now, self._free_at) + size / self._rate
        if wait:
            await asyncio.sleep(wait)
