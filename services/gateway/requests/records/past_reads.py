"""Reads of a fork's past: the turns of partitions that have one name there, and the bytes that come in a second.

1. The past of a fork is another topic's log. A request to a broker names it as that topic, so one request can't be
   about both. If a client wants both from one connection, one of them has its turn, and the others wait.
2. A fork may have a bound for reads of its past. When this gateway process has read more, the partitions of the past
   wait, and all others go on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mesh.quotas.rate import Rate

TURN_S: Final = 0.1
"""The longest wait of a client for the partitions that have their turn, while others of its partitions wait."""


class PastReads:
    """The rates of all forks that have a bound; there is one for each topic with a stitched log, at most."""

    def __init__(self) -> None:
        self._rates: dict[str, Rate] = {}
        self._paused: dict[str, float] = {}
        """Topic -> the time until which its past waits."""

    def wait_s(self, topic: str, now: float) -> float:
        """The time that the topic's past has to wait; 0: it may be read."""
        return max(0.0, self._paused.get(topic, 0.0) - now)

    def count(self, topic: str, size: int, bytes_per_second: int, now: float) -> None:
        """Adds bytes that came from the topic's past."""
        rate = self._rates.get(topic)
        if rate is None or rate.quota != bytes_per_second:
            rate = self._rates[topic] = Rate(bytes_per_second)
        self._paused[topic] = now + rate.used(size, now)

    def keep(self, topics: Collection[str]) -> None:
        """Forgets the topics that are not among these."""
        for topic in self._rates.keys() - set(topics):
            del self._rates[topic], self._paused[topic]
