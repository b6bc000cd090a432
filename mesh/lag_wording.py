"""How the lag of a group is said: ages, the outlook and sums. The same for meshctl and for the console."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mesh.rpc import topics

UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def length(seconds: float) -> str:
    """ "40 s", "12 min", "5.2 h"."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def behind(point: topics.LagPoint) -> str:
    """The age of a lag: "> 2 h" if the samples are younger than the record."""
    return f"{'> ' if point.at_least else ''}{length(point.seconds)}" if point.records else "-"


def outlook(of: topics.PartitionLag) -> str:
    """The time until the lag is gone, or how fast it grows."""
    if not of.last.records:
        return "-"
    if of.HasField("catch_up"):
        return f"caught up in {length(of.catch_up.ToTimedelta().total_seconds())}"
    growth = of.written_per_second - of.passed_per_second
    return f"falls behind by {growth:,.3g} records/s" if growth > 0 else "stays"


@dataclass(slots=True)
class Total:
    """All partitions at one time."""

    time_s: int
    records: int = 0
    oldest: topics.LagPoint | None = None


def totals(found: Iterable[topics.PartitionLag]) -> Sequence[Total]:
    """The lag of all partitions over time; the age is the highest of any partition."""
    by_time: dict[int, Total] = {}
    for each in found:
        for point in each.points:
            total = by_time.setdefault(point.time.seconds, Total(point.time.seconds))
            total.records += point.records
            if total.oldest is None or point.seconds > total.oldest.seconds:
                total.oldest = point
    return [by_time[time] for time in sorted(by_time)]


def sampling(of: topics.LagSampling) -> list[str]:
    """The problems of the samples, a sentence each."""
    said = [of.problem] if of.problem else []
    if of.left_out_groups:
        said.append(
            f"control leaves out {of.left_out_groups:,} groups with {of.left_out_partitions:,} partitions: "
            "its setting LAG_PARTITIONS is the bound"
        )
    return said
