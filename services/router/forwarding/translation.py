"""Exact translation of every offset of a mirror's source to its target. No I/O.

Theory of operation
1. The target's log is its own offset map: each record that the mirror wrote carries its source offset in its header.
   The translation of an offset is the target offset of the first such record at or behind the source offset. So the
   worker need not keep state for each record or each transaction. The translation is exact, because it reads the
   target's log itself: after compaction, retention, filters, transaction markers on either side, records of other
   producers, and even after a restore of the target.
2. The records of a mirror are in the order of the source, from each turn to the next (`points`). So a binary search
   finds the first record, and reads the last NEAR offsets one after the other.
3. A group that has read all copied records continues behind them: at records that others wrote behind the mirror's last
   record, or at the end.
4. The offset of a record that is not copied yet can't be translated: a group that is ahead of the mirror gets the end
   of the target's log. From there the group would read records again, so the worker translates the group's offset again
   until the mirror has caught up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from services.router.forwarding.points import Stretch

NEAR = 500
"""Target offsets; so many are read quicker than halved once more."""


class Sighting(NamedTuple):
    """A record of the target partition."""

    target: int
    source: int | None
    """None: it is not this mirror's."""


class Log(NamedTuple):
    """The target partition, as a search reads it."""

    end: int
    """Behind the last record that is committed."""
    read: Callable[[int], Iterator[Sighting]]
    """The records from this offset to the end."""


def translated(source: int, stretch: Stretch, log: Log) -> int:
    """The target offset at which who would read `source` next goes on."""
    low = min(stretch.first, log.end)
    high = log.end if stretch.last is None else min(stretch.last, log.end)
    # every record of ours before `low` is before `source`; the first that is not is before `high`, at it, or known
    while high - low > NEAR:
        middle = (low + high) // 2
        seen = next((each for each in log.read(middle) if each.source is not None), None)
        if seen is None or seen.source is None or seen.source >= source:
            high = middle
        else:
            low = seen.target + 1
    return _read_on(source, low, log)


def _read_on(source: int, low: int, log: Log) -> int:
    behind: int | None = None
    """The first record of others behind our last one."""
    for seen in log.read(low):
        if seen.source is None:
            behind = seen.target if behind is None else behind
        elif seen.source >= source:
            return seen.target
        else:
            behind = None
    return log.end if behind is None else behind
