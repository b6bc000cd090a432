"""How fast a job may go: a token bucket. Tells how many records may go now, and when the next one may. No clock."""


class Pace:
    """At most `rate` records a second, and a tenth of a second's worth at once; 0 is no bound."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._room = max(rate / 10, 1.0)
        self._tokens = 1.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        """How many of these may go now; they count as gone."""
        if not self._rate:
            return wanted
        self._refill(now)
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def pause(self, now: float) -> float:
        """Seconds until one may go."""
        if not self._rate:
            return 0.0
        self._refill(now)
        return max(1.0 - self._tokens, 0.0) / self._rate

    def _refill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._room)
        self._at = now
