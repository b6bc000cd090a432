"""Signposts into a target partition: target offsets at which offsets of the source begin. No I/O.

Theory of operation
1. A point means: every record of the source at or behind `source` is on the target at or behind `target`. A transaction
   gives a point for each of its partitions: the transaction's first source position, and the offset of its first
   record.
2. Between two points the mirror's records are in the order of the source, and each carries its source offset, so a
   binary search works there. Points only shorten the search; the result is exact with any number of points.
3. A rewind is an exception: the order begins again. Points behind the new position are dropped, and the new position
   and the end of the target become a point, a *turn*, which is never thinned out: records before it are from the old
   pass. The first point of a partition is a turn, too: records before it are not from this rule.
4. The number is bounded: MOST points, of which every second one is dropped when there are more. The last RECENT points
   are also kept, in memory only, because groups that follow the log are at these offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

MOST = 128
"""Points that are kept; in the topic they take a few kilobytes."""
RECENT = 1024
"""Transactions whose beginnings are known while the worker runs; a search among them reads one transaction."""


class Point(NamedTuple):
    """Records at or behind `source` are at or behind `target`."""

    source: int
    target: int
    turn: bool = False


class Stretch(NamedTuple):
    """The range of offsets to search on the target."""

    first: int
    last: int | None
    """The record is at this offset or before; None: the bound is not known yet."""


class Points:
    """The points of one partition, in the order of both offsets. Written by one thread, read by any."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._kept = tuple(points)
        self._recent: tuple[Point, ...] = ()

    @property
    def kept(self) -> tuple[Point, ...]:
        """The points that are written to the target."""
        return self._kept

    @property
    def begins(self) -> int:
        """The source offset at which the mirror began; records before it are not copied."""
        return self._kept[0].source if self._kept else 0

    @property
    def last_kept(self) -> Point | None:
        return self._kept[-1] if self._kept else None

    @property
    def latest(self) -> int:
        """Target offset at which this worker's last transaction began; -1 when it had none."""
        return self._recent[-1].target if self._recent else -1

    def note(self, point: Point) -> None:
        """Adds the point at which a committed transaction began."""
        self._recent = (*self._recent[-RECENT + 1 :], point)

    def keep(self, point: Point) -> None:
        """Adds a point that is to be written to the target."""
        kept = self._kept
        if len(kept) >= MOST:
            kept = tuple(each for index, each in enumerate(kept) if index % 2 == 0 or each.turn)[-MOST + 1 :]
        self._kept = (*kept, point)

    def rewind(self, source: int, end: int) -> None:
        """The mirror begins at `source`, for the first time or again; the target ends at `end`."""
        self._kept = tuple(each for each in self._kept if each.source < source)
        self._recent = tuple(each for each in self._recent if each.source < source)
        self.keep(Point(source, end, turn=True))

    def stretch(self, source: int) -> Stretch:
        """The range that contains the first record at or behind this source offset."""
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
