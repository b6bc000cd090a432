"""Latency percentiles in fixed memory: a histogram whose buckets widen with the value (at most 1.6 % off)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_FINE = 128  # microseconds up to here have a bucket each
_STEPS = 64  # buckets for each doubling above
_HIGHEST_US = 2**36 - 1  # 19 hours; longer ones count as this
_SLOTS = _FINE + (_HIGHEST_US.bit_length() - _FINE.bit_length() + 1) * _STEPS


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The latencies of a load run, in milliseconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    p999: float
    max: float


class Histogram:
    """Counts of latencies. One thread writes; others may read a copy that is a few records old."""

    __slots__ = ("_counts", "_highest_us", "_total_us", "count")

    def __init__(self) -> None:
        self._counts = [0] * _SLOTS
        self._total_us = 0
        self._highest_us = 0
        self.count = 0

    def record(self, seconds: float) -> None:
        microseconds = min(max(int(seconds * 1_000_000), 0), _HIGHEST_US)
        self._counts[_slot(microseconds)] += 1
        self._total_us += microseconds
        self._highest_us = max(self._highest_us, microseconds)
        self.count += 1

    @classmethod
    def merged(cls, parts: Iterable[Histogram]) -> Histogram:
        """All of `parts` in one."""
        whole = cls()
        for part in parts:
            whole._counts = [a + b for a, b in zip(whole._counts, part._counts, strict=True)]
            whole._total_us += part._total_us
            whole._highest_us = max(whole._highest_us, part._highest_us)
            whole.count += part.count
        return whole

    def since(self, earlier: Histogram) -> Histogram:
        """The values counted after `earlier`, a copy of this histogram taken before. The maximum is that of the highest
        bucket.
        """
        recent = Histogram()
        recent._counts = [a - b for a, b in zip(self._counts, earlier._counts, strict=True)]
        recent._total_us = self._total_us - earlier._total_us
        recent.count = sum(recent._counts)
        used = [slot for slot, count in enumerate(recent._counts) if count]
        recent._highest_us = min(_upper_edge(used[-1]), self._highest_us) if used else 0
        return recent

    def percentiles(self) -> Percentiles | None:
        """None when nothing was counted."""
        if not self.count:
            return None
        p50, p95, p99, p999 = (self._quantile(share) / 1000 for share in (0.5, 0.95, 0.99, 0.999))
        return Percentiles(self._total_us / self.count / 1000, p50, p95, p99, p999, self._highest_us / 1000)

    def _quantile(self, share: float) -> int:
        wanted = share * sum(self._counts)
        seen = 0
        for slot, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return min(_upper_edge(slot), self._highest_us)
        return self._highest_us


def _slot(microseconds: int) -> int:
    if microseconds < _FINE:
        return microseconds
    shift = microseconds.bit_length() - _STEPS.bit_length()
    return _FINE + (shift - 1) * _STEPS + (microseconds >> shift) - _STEPS


def _upper_edge(slot: int) -> int:
    if slot < _FINE:
        return slot
    shift, step = divmod(slot - _FINE, _STEPS)
    return ((_STEPS + step + 1) << (shift + 1)) - 1
