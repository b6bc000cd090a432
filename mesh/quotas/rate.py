"""The rate of a use, measured as Kafka measures it: over samples of one second, the last of which is still filling.

Theory of operation
1. A use is added to the present sample. A sample that began a second ago or longer is followed by a new one; samples
   that began `SAMPLES` seconds ago or longer are dropped.
2. The rate is the sum of the samples by the time since the oldest began. If fewer than `SAMPLES` - 1 whole seconds have
   passed since then, the missing seconds count as if nothing had been used in them. So a client that was quiet may use
   some ten seconds' worth at once.
3. A use above the quota costs a pause: the excess by the quota, times the time over which the rate was measured
   (`QuotaUtils.throttleTime`). The rate is back at the quota when the pause ends.
4. `room` says how much may be used before anybody has to measure again, until `until`. It saves the measuring: in one
   sample the time grows and the sum grows by the uses alone, so the quota is not exceeded before the room is used up.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLES: Final = 11
"""`quota.window.num` of Kafka."""
SAMPLE_S: Final = 1.0
"""`quota.window.size.seconds` of Kafka."""


class Rate:
    """One use, in units a second. Times are in seconds, and never go back."""

    __slots__ = ("_samples", "_sum", "quota", "room", "until")

    def __init__(self, quota: float) -> None:
        self.quota = quota
        self.room = 0.0
        """The use until `until` that needs no measurement; callers subtract each use from it."""
        self.until = 0.0
        self._samples: deque[list[float]] = deque()
        """Beginning and sum of each sample."""
        self._sum = 0.0

    def used(self, amount: float, now: float) -> float:
        """Adds a use; returns for how many seconds the client has to pause."""
        sample = self._present(now)
        sample[1] += amount
        self._sum += amount
        window = self._window(now)
        excess = self._sum / window - self.quota
        self.room = self.quota * window - self._sum
        self.until = sample[0] + SAMPLE_S
        return excess / self.quota * window if excess > 0 else 0.0

    def unused(self, amount: float, now: float) -> None:
        """Takes back a use that did not come about."""
        self._present(now)[1] -= amount
        self._sum -= amount
        self.until = 0.0

    def measured(self, now: float) -> float:
        """The rate now."""
        self._drop_old(now)
        return self._sum / self._window(now) if self._samples else 0.0

    def _present(self, now: float) -> list[float]:
        self._drop_old(now)
        samples = self._samples
        if not samples or now - samples[-1][0] >= SAMPLE_S:
            samples.append([now, 0.0])
        return samples[-1]

    def _drop_old(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0][0] >= SAMPLES * SAMPLE_S:
            samples.popleft()
            self._sum = sum(amount for _, amount in samples)  # anew, so that rounding does not add up

    def _window(self, now: float) -> float:
        elapsed = now - self._samples[0][0]
        missing = SAMPLES - 1 - int(elapsed / SAMPLE_S)
        return elapsed + missing * SAMPLE_S if missing > 0 else elapsed
