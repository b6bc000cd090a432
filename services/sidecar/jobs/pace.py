"""The rate limit of a job: a token bucket gives the number of records that may go now, or the wait. No clock."""


class Pace:
    """Allows `rate` records a second, and at most a tenth of a second's worth at once; a rate of 0 is no bound."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._room = max(rate / 10, 1.0)
        self._tokens = 1.0
        self._at = now

    def take(self, wanted: int, now: float) -> int:
        """The number of the wanted records that may go now; the bucket counts them as gone."""
        if not self._rate:
            return wanted
        self._refill(now)
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken

    def pause(self, now: float) -> float:
        """Seconds until one record may go."""
        if not self._rate:
            return 0.0
        self._refill(now)
        return max(1.0 - self._tokens, 0.0) / self._rate

    def _refill(self, now: float) -> None:
        self._tokens = min(self._tokens + (now - self._at) * self._rate, self._room)
        self._at = now
