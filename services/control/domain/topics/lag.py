"""The lag of a group in one partition over time: how much, how old, since when, and for how long. No I/O.

Theory of operation
1. A course is a list of samples: at a time, the group's position and the end of the log. Between two samples the course
   is a straight line.
2. The age of a lag is the time since the record at the position was written. The course of the end says when that was:
   the end passed the position then. No record is read. If the first sample is already past it, the age is a bound.
3. An end that goes back belongs to another log (the topic was made again): a course begins behind the last such place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

LONGEST_GAP_S: Final = 630.0
"""Seconds between two samples that belong together: twice five minutes, and a little for a round that is late."""
RECENT_S: Final = 300.0
"""Seconds over which rates are taken. Groups commit every five seconds or so, and batches come in bursts."""
SETTLED_S: Final = 60.0
"""Seconds that a lag must have grown for: shorter ones come and go with each commit."""


class Sample(NamedTuple):
    """Time in seconds since 1970, the next offset that the group reads, and the end of the log."""

    time: float
    position: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag at one time; `at_least`: the age is only a lower bound."""

    time: float
    records: int
    seconds: float
    at_least: bool


@dataclass(frozen=True, slots=True)
class Since:
    """The start of a state that lasts up to the last sample."""

    time: float
    records: int
    """The lag then."""
    for_longer: bool = False
    """The course has nothing before it."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Records per second lately."""

    written: float
    passed: float


class Course:
    """The samples of one partition, in the order of their times; there is at least one."""

    def __init__(self, samples: Sequence[Sample], longest_gap_s: float = LONGEST_GAP_S) -> None:
        self._longest_gap_s = longest_gap_s
        back = (each for each in range(len(samples) - 1, 0, -1) if samples[each].end < samples[each - 1].end)
        self._samples = samples[next(back, 0) :]
        self._times = [each.time for each in self._samples]
        self._ends = [each.end for each in self._samples]

    @property
    def last(self) -> Lag:
        return self._lag(self._samples[-1])

    def at(self, times: Sequence[float]) -> Iterator[Lag]:
        """The lag at these times; a time that no samples enclose has none."""
        for time in times:
            place = bisect_right(self._times, time) - 1
            if place < 0:
                continue
            before = self._samples[place]
            if before.time == time:
                yield self._lag(before)
            elif place + 1 < len(self._samples) and self._times[place + 1] - before.time <= self._longest_gap_s:
                yield self._lag(_between(before, self._samples[place + 1], time))

    def growing_since(self) -> Since | None:
        """The last time at which the lag was lowest in the stretch that never had more lag than now."""
        rates, last = self.rates(), self._samples[-1]
        if rates.written <= rates.passed:
            return None
        most = max(each.lag for each in self._samples if each.time > last.time - SETTLED_S)
        lowest = last
        for each in reversed(self._samples):
            if each.lag > most:
                break
            if each.lag < lowest.lag:
                lowest = each
        if last.time - lowest.time < SETTLED_S:
            return None
        return Since(lowest.time, lowest.lag, for_longer=lowest is self._samples[0])

    def above_since(self, records: int) -> Since | None:
        """The first of the last samples that all have a lag of more than so many records."""
        first: Sample | None = None
        for each in reversed(self._samples):
            if each.lag <= records:
                break
            first = each
        return None if first is None else Since(first.time, first.lag, for_longer=first is self._samples[0])

    def rates(self) -> Rates:
        """From the samples of the last five minutes, behind the last reset of the position; 0 without two samples."""
        last = first = self._samples[-1]
        for each in reversed(self._samples):
            if each.time < last.time - RECENT_S or each.position > first.position:
                break
            first = each
        seconds = last.time - first.time
        if not seconds:
            return Rates(0.0, 0.0)
        return Rates((last.end - first.end) / seconds, (last.position - first.position) / seconds)

    def catch_up_s(self) -> float | None:
        """Seconds until the lag is 0 if both rates stay; None if the lag does not shrink."""
        rates, lag = self.rates(), self._samples[-1].lag
        if not lag:
            return 0.0
        return lag / (rates.passed - rates.written) if rates.passed > rates.written else None

    def _lag(self, at: Sample) -> Lag:
        if not at.lag:
            return Lag(at.time, 0, 0.0, at_least=False)
        place = bisect_right(self._ends, at.position) - 1
        if place < 0:
            return Lag(at.time, at.lag, max(0.0, at.time - self._times[0]), at_least=True)
        before, after = self._samples[place], self._samples[place + 1]
        share = (at.position - before.end) / (after.end - before.end)
        written = before.time + share * (after.time - before.time)
        return Lag(at.time, at.lag, max(0.0, at.time - written), at_least=False)


def _between(before: Sample, after: Sample, time: float) -> Sample:
    share = (time - before.time) / (after.time - before.time)
    position = before.position + share * (after.position - before.position)
    return Sample(time, int(position), int(before.end + share * (after.end - before.end)))


STEPS_S: Final = (10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 86_400)
GOOD_POINTS, MOST_POINTS = 100, 1_000
"""Points of a partition: what a step gives if the request names none, and the most that a request may ask for."""
MOST_POINTS_OF_A_PAGE: Final = 20_000
"""About 1 MB."""


def step_s(length_s: float) -> int:
    """The shortest step that gives at most GOOD_POINTS points."""
    return next((each for each in STEPS_S if length_s <= GOOD_POINTS * each), STEPS_S[-1])


def steps(start: float, end: float, step: float) -> list[float]:
    """The multiples of the step from start to end."""
    first = -(-start // step)
    return [number * step for number in range(int(first), int(end // step) + 1)]
