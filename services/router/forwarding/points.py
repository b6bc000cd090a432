"""Signposts into a target partition: which offsets of the source begin where. No I/O.

Theory of operation
1. A point says: every record of the source at or behind `source` is on the target at or behind `target`. A transaction
   gives one for each of its partitions: the position it began at, and the offset that its first record got.
2. Between two points the mirror's records lie in the order of the source, so that one can search there by halves:
   each carries its source offset. Points only shorten the search; how many are kept decides nothing about exactness.
3. But for these: where an operator rewinds, the order begins anew. Points behind the place are dropped, and one is made
   of the place and the end of the target, a *turn*, which is never thinned out: what lies before it is the old pass.
   So is the first point of a partition: what lies before it is none of this rule's.
4. Bounded: MOST points, of which every second one is dropped when there are more; the last RECENT are kept besides, in
   memory only, because groups that follow the log are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

MOST = 128
"""Points that are kept; in the topic they take a few kilobytes."""
RECENT = 1024
"""Transactions whose beginnings are known while the worker lives; a search there reads one transaction."""


class Point(NamedTuple):
    """Records at or behind `source` are at or behind `target`."""

    source: int
    target: int
    turn: bool = False


class Stretch(NamedTuple):
    """Where to search on the target."""

    first: int
    last: int | None
    """What is looked for is at this offset or before; None: nobody knows yet how far."""


class Points:
    """Those of one partition, in the order of both offsets. Written by one thread, read by any."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._kept = tuple(points)
        self._recent: tuple[Point, ...] = ()

    @property
    def kept(self) -> tuple[Point, ...]:
        """Those worth writing down."""
        return self._kept

    @property
    def last_kept(self) -> Point | None:
        return self._kept[-1] if self._kept else None

    @property
    def latest(self) -> int:
        """Target offset at which this worker's last transaction began; -1 when it had none."""
        return self._recent[-1].target if self._recent else -1

    def note(self, point: Point) -> None:
        """A transaction was committed that began here."""
        self._recent = (*self._recent[-RECENT + 1 :], point)

    def keep(self, point: Point) -> None:
        """This one is to be written down."""
        kept = self._kept
        if len(kept) >= MOST:
            kept = tuple(each for index, each in enumerate(kept) if index % 2 == 0 or each.turn)[-MOST + 1 :]
        self._kept = (*kept, point)

    def rewind(self, source: int, end: int) -> None:
        """The mirror begins here, or again; the target ends at `end`."""
        self._kept = tuple(each for each in self._kept if each.source < source)
        self._recent = tuple(each for each in self._recent if each.source < source)
        self.keep(Point(source, end, turn=True))

    def stretch(self, source: int) -> Stretch:
        """Where the first record at or behind this source offset is."""
        low, high = _around(self._kept, source)
        near_low, near_high = _around(self._recent, source)
        if near_low and (low is None or near_low.target > low.target):
            low = near_low
        if near_high and (high is None or near_high.target < high.target):
            high = near_high
        if low is None:  # before all that was copied: the first of that is meant
            low = min(self._kept[:1], default=None)
        return Stretch(low.target if low else 0, high.target if high else None)


def _around(points: tuple[Point, ...], source: int) -> tuple[Point | None, Point | None]:
    behind = bisect_right(points, source, key=lambda point: point.source)
    return points[behind - 1] if behind else None, points[behind] if behind < len(points) else None
