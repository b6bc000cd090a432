"""A lane's share of the rate, as pauses. No I/O, no clock of its own."""

from __future__ import annotations

BURST_S = 0.25
"""What may be written at once, in seconds of the rate: pauses are shorter than a transaction lasts, and few."""


class Pace:
    """Tells how long to wait after each few records. A rate of 0 is without a limit."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._free_at = now

    @property
    def most_at_once(self) -> int:
        """Records to be written between two questions; 0: any number."""
        return max(1, int(self._rate * BURST_S)) if self._rate else 0

    def pause_after(self, records: int, now: float) -> float:
        """Seconds to wait before the next record; what was not used before is not made up for later."""
        if not self._rate:
            return 0.0
        self._free_at = max(self._free_at, now - BURST_S) + records / self._rate
        return max(0.0, self._free_at - now)
