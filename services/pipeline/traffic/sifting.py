"""Which reports of a batch count, and how far the tables are complete when it is written. No I/O, no Spark.

1. A report counts where it stands first: with the lowest offset of the batch, and never if an earlier batch took it.
2. **The watermark** is `complete_until`: all traffic before it is in the tables. It goes by partitions: where all was
   read that was there when we looked, it is that moment, less the time that a report takes to arrive; where a partition
   has more to read, the time of the last record that was read of it. The lowest one counts, and none is later than when
   we looked: a record's time is what its writer's clock says. (Spark's own watermark goes
   by the latest time that was seen anywhere, and drops what is behind it: of a backlog with partitions of unequal
   length that is most of the longer one.)
3. What comes behind the watermark is late: it is counted as such, and counts like all else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

ARRIVAL = timedelta(seconds=30)
"""A report covers ten seconds, and may be on its way for some more."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report, without what it has counted."""

    place: Place
    written: datetime | None
    """When the record was; None for those of message formats that know no time."""
    id: str | None = None
    """None for what is no report."""
    start: datetime | None = None
    end: datetime | None = None
    counters: int = 0
    overflowed: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Sifted:
    """The reports of a batch, told apart."""

    taken: list[Report]
    repeated: list[Report]
    refused: Mapping[Place, str]
    """And why."""
    late: int
    """Of those that are taken."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition of mesh.traffic, as it was when we looked, and as far as it is read."""

    end: int
    next: int
    last_written: datetime | None
    """Of the last record that was read in this batch."""


def sift(reports: Iterable[Report], known: Collection[str], watermark: datetime | None) -> Sifted:
    """`known` are ids of reports that were taken before."""
    seen = set(known)
    taken, repeated, refused = [], [], {}
    for report in sorted(reports, key=lambda each: each.place):
        if report.id is None or report.start is None or report.end is None:
            refused[report.place] = report.problem or "it is no report"
        elif report.id in seen:
            repeated.append(report)
        else:
            seen.add(report.id)
            taken.append(report)
    late = sum(1 for each in taken if watermark is not None and each.end is not None and each.end <= watermark)
    return Sifted(taken, repeated, refused, late)


def watermark(before: datetime | None, extents: Iterable[Extent], looked: datetime) -> datetime | None:
    """How far the tables are complete; never less far than `before`."""
    reached: list[datetime | None] = [looked if each.next >= each.end else each.last_written for each in extents]
    if not reached or None in reached:
        return before
    complete = min(looked, *(each for each in reached if each is not None)) - ARRIVAL
    return complete if before is None else max(before, complete)
