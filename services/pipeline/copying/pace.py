"""A lane's share of the rate, as pauses. No I/O; callers pass the time."""

from __future__ import annotations

BURST_S = 0.25
"""Records written at once, in seconds of the rate: the pauses are few, and shorter than a transaction."""


class Pace:
    """Returns the pause after each few records. A rate of 0 means no limit."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._free_at = now

    @property
    def most_at_once(self) -> int:
        """The most records to write between two calls of `pause_after`; 0: any number."""
        return max(1, int(self._rate * BURST_S)) if self._rate else 0

    def pause_after(self, records: int, now: float) -> float:
        """Seconds to wait before the next record; unused rate can't be used later."""
        if not self._rate:
            return 0.0
        self._free_at = max(self._free_at, now - BURST_S) + records / self._rate
        return max(0.0, self._free_at - now)
