"""The age of the lag of each group and topic, from sample to sample. No I/O.

Theory of operation
1. For each partition, the ages need the course of its end since it passed the position of the group. `lag.Course` turns
   the course into an age.
2. A course keeps at most MOST_POINTS points. If it has more, every second one goes: the line between two points is
   coarser then, and its ends stay.
3. A series that a sample lacks is forgotten. A course that begins behind the position gives a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from services.control.domain.topics.lag import Course, Sample
from services.control.domain.topics.lag_samples import Seen, Series

MOST_POINTS: Final = 16
"""Points of one partition: 10,000 partitions that are all behind take 25 MB."""


@dataclass(slots=True)
class Ages:
    """The courses of all partitions."""

    _courses: dict[Series, dict[int, list[Sample]]] = field(default_factory=dict)

    def after(self, time: datetime, sampled: Mapping[Series, Seen]) -> dict[Series, float]:
        """The oldest lag of each series in seconds, after one more sample."""
        at = time.timestamp()
        courses: dict[Series, dict[int, list[Sample]]] = {}
        ages: dict[Series, float] = {}
        for series, seen in sampled.items():
            before, now = self._courses.get(series, {}), courses.setdefault(series, {})
            oldest = 0.0
            for number, position, end in zip(seen.partitions, seen.positions, seen.ends, strict=True):
                course = now[number] = _with(before.get(number, []), Sample(at, position, end))
                if end > position:
                    oldest = max(oldest, Course(course).last.seconds)
            ages[series] = oldest
        self._courses = courses
        return ages

    def forget(self) -> None:
        self._courses = {}


def _with(course: list[Sample], sample: Sample) -> list[Sample]:
    """The part of a course that a later age may need."""
    if course and sample.end < course[-1].end:  # the topic was made again
        return [sample]
    passed = [place for place, each in enumerate(course) if each.end <= sample.position]
    kept = course[passed[-1] :] if passed else course
    if len(kept) >= MOST_POINTS:
        kept = [*kept[:-1:2], kept[-1]]
    return [*kept, sample]
