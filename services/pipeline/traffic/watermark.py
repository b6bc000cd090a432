"""Decides which reports of a batch count, and how far the tables are complete after the batch. No I/O, no Spark.

1. Only the first copy of a report counts: the one with the lowest offset in the batch, if no earlier batch has taken
   the report.
2. **The watermark** is `complete_until`: all traffic before it is in the tables. Each partition has a time of its own.
   If all records up to the checked end offset were read, this is the time of the check. Otherwise this is the time of
   the last record that was read. The lowest of these times counts, less the time that a report takes to arrive. No time
   is later than the check, because a record's time comes from the clock of its writer. (Spark's own watermark follows
   the latest time in any partition, and drops older records. In a backlog with partitions of unequal length, these are
   most records of the longer partition.)
3. A report behind the watermark is late: it is counted as late, and its counters count like all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

ARRIVAL = timedelta(seconds=30)
"""A report covers ten seconds, and may take some more to arrive."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report, without what it has counted."""

    place: Place
    written: datetime | None
    """Kafka's time of the record; None for message formats without a timestamp."""
    id: str | None = None
    """None for a record that is no report."""
    start: datetime | None = None
    end: datetime | None = None
    counters: int = 0
    overflowed: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Sifted:
    """The reports of a batch, sorted into three groups."""

    taken: list[Report]
    repeated: list[Report]
    refused: Mapping[Place, str]
    """The place and problem of each malformed record."""
    late: int
    """Number of taken reports that are late."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition of mesh.traffic at the time of the check, and how far it is read."""

    end: int
    next: int
    last_written: datetime | None
    """Time of the last record that was read in this batch."""


def sift(reports: Iterable[Report], known: Collection[str], watermark: datetime | None) -> Sifted:
    """`known` are ids of reports that earlier batches have taken."""
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
    """The time up to which the tables are complete; never earlier than `before`."""
    reached: list[datetime | None] = [looked if each.next >= each.end else each.last_written for each in extents]
    if not reached or None in reached:
        return before
    complete = min(looked, *(each for each in reached if each is not None)) - ARRIVAL
    return complete if before is None else max(before, complete)
