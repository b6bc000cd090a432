"""Receipts: which offsets of a partition a gateway has sent to whom, in one interval, as ranges.

Theory of operation
1. `Receipts` belongs to one thread, as `Counts` does. Most readers read on, so a range grows at its end. This costs a
   look-up and a comparison for each partition of an answer, and nothing for a record.
2. A range has only offsets that were sent. If the ranges of a reader find no room, the rest goes into one wide range,
   `perhaps`. Each offset of the rest is in this range, and other offsets may be in it too.
3. Readers are bounded, because clients choose their names. Further readers are not distinguished: `OVERFLOW` shows that
   there were some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

MOST_READINGS = 5_000
"""Partitions times readers of one interval: about 3 MB."""
MOST_RANGES, MOST_EXACT_RANGES = 16, 1_000
"""Ranges of one reading: of topics in general, and of those that ask for exact receipts."""

Range = tuple[int, int]
"""The first offset, and the one behind the last."""


class Reading(NamedTuple):
    """One reader of one partition."""

    principal: str
    client: str
    group: str
    topic: str
    partition: int
    cluster: str
    topic_id: bytes
    """The id that the cluster gave the topic."""


OVERFLOW = Reading("", "", "", "", 0, "", b"")
"""Readers that found no room."""


class Sent:
    """The offsets of one reading."""

    __slots__ = ("_end", "_first", "_most", "_others", "perhaps")

    def __init__(self, most: int = MOST_RANGES) -> None:
        self._most = most
        self._first = self._end = -1
        """The range that grows ..."""
        self._others: list[Range] = []
        """... and those before it, in the order in which they came."""
        self.perhaps: Range | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the topic asks for exact receipts."""
        return self._most > MOST_RANGES

    def add(self, first: int, end: int) -> None:
        """Adds the offsets from `first` to before `end`."""
        if self._first <= first <= self._end:
            if end > self._end:
                self._end = end
            return
        if self._end >= 0:
            self._others.append((self._first, self._end))
            if len(self._others) > 2 * self._most:
                self._settle()
        self._first, self._end = first, end

    def add_perhaps(self, first: int, end: int) -> None:
        """Some of the offsets from `first` to before `end` were sent."""
        if first < end:
            self.perhaps = hull(self.perhaps, (first, end))

    def ranges(self) -> list[Range]:
        """The ranges in their order, none of which touches another."""
        if self._end >= 0:
            self._others.append((self._first, self._end))
            self._first = self._end = -1
        self._settle()
        return self._others

    def _settle(self) -> None:
        self._others = union(self._others)
        for each in self._others[self._most :]:
            self.perhaps = hull(self.perhaps, each)
        del self._others[self._most :]


def union(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets in as few ranges as possible, in their order."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return joined


def hull(one: Range | None, other: Range) -> Range:
    """The smallest range that has both."""
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


class Receipts:
    """See above."""

    __slots__ = ("_most", "_readings", "interval")

    def __init__(self, most: int = MOST_READINGS) -> None:
        self._most = most
        self._readings: dict[Reading, Sent] = {}
        self.interval = 0
        """The number of the interval: what `of` gave in another one does not count any more."""

    def of(self, reading: Reading, most_ranges: int = MOST_RANGES) -> Sent:
        """The offsets of a reading, to add to; those of `OVERFLOW`, which nobody reads, if it finds no room."""
        sent = self._readings.get(reading)
        if sent is None:
            if len(self._readings) >= self._most:
                reading = OVERFLOW
            sent = self._readings.setdefault(reading, Sent(most_ranges))
        return sent

    def take(self) -> Mapping[Reading, Sent]:
        """The receipts of the interval that ends now; the next one begins."""
        taken, self._readings = self._readings, {}
        self.interval += 1
        return taken

    def __len__(self) -> int:
        return len(self._readings)


def packed(ranges: Iterable[Range]) -> list[int]:
    """Ranges in their order, as `SentOffsets` has them."""
    numbers: list[int] = []
    before = 0
    for first, end in ranges:
        numbers += (first - before, end - first)
        before = end
    return numbers


def unpacked(numbers: Iterable[int]) -> list[Range]:
    """The ranges that `packed` got."""
    ranges, before = [], 0
    waiting = iter(numbers)
    for distance, length in zip(waiting, waiting, strict=True):
        first = before + distance
        before = first + length
        ranges.append((first, before))
    return ranges
