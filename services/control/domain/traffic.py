"""Questions about traffic: what may be asked, which tables answer it, and what the answer comes to.

A range is answered by the coarsest steps that fit: whole days, then whole hours, then the minutes at its ends. So an
hour reads minutes, and a year 365 days and a little. What is older than a finer step is kept counts with the whole hour
or day that it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum

from mesh.rpc import traffic
from services.control.domain.errors import InvalidField

LAST_HOUR, LAST_DAY = timedelta(hours=1), timedelta(hours=24)
"""What is answered about where no time is given: who talks most, and how traffic went."""
DEFAULT_LIMIT, LARGEST_LIMIT = 10, 1000
GOOD_POINTS, MOST_POINTS = 200, 5_000
SILENT_AFTER = timedelta(seconds=60)
"""A pipeline says how far it is every ten seconds or so."""
HOW_TO_START = "start `kafka-mesh pipeline serve`, or `kafka-mesh pipeline run traffic --continuous`"


class Step(Enum):
    """What rows of a table are about; its length."""

    MINUTE = timedelta(minutes=1)
    HOUR = timedelta(hours=1)
    DAY = timedelta(days=1)

    def floor(self, moment: datetime) -> datetime:
        """Where the minute, hour or day begins that `moment` lies in."""
        since = moment - datetime.fromtimestamp(0, UTC)
        return moment - since % self.value

    def ceil(self, moment: datetime) -> datetime:
        """Where the next one begins, unless one begins right there."""
        floor = self.floor(moment)
        return floor if floor == moment else floor + self.value


_HasTimes = traffic.TopTalkersRequest | traffic.QueryTrafficRequest
Kept = Mapping[Step, date]
"""The first day that a step has; absent for all of them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a range that one step answers; it begins and ends where one of its rows does."""

    step: Step
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Range:
    """What is asked about: who, and when."""

    filter: Mapping[str, str]
    """What columns have to hold."""
    start: datetime
    end: datetime


def range_of(asked: traffic.TrafficFilter, request: _HasTimes, now: datetime, default: timedelta) -> Range:
    """InvalidField where times are the wrong way round."""
    end = request.end_time.ToDatetime(UTC) if request.HasField("end_time") else now
    start = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else end - default
    if start >= end:
        raise InvalidField("end_time", f"{end.isoformat()} is not after start_time, {start.isoformat()}")
    return Range({field.name: value for field, value in asked.ListFields()}, start, end)


def columns_of(dimensions: Sequence[traffic.TrafficDimension.ValueType]) -> list[str]:
    """Columns by which talkers are told apart."""
    known = {
        number: name.removeprefix("TRAFFIC_DIMENSION_").lower() for name, number in traffic.TrafficDimension.items()
    }
    if not dimensions:
        raise InvalidField("by", f"says by what talkers are told apart: {', '.join(list(known.values())[1:])}")
    for place, each in enumerate(dimensions):
        if each == traffic.TRAFFIC_DIMENSION_UNSPECIFIED or each not in known:
            raise InvalidField(
                f"by[{place}]", f"{each} is no dimension; possible are {', '.join(list(known.values())[1:])}"
            )
        if each in dimensions[:place]:
            raise InvalidField(f"by[{place}]", f"{known[each]} is named twice")
    return [known[each] for each in dimensions]


def measure_of(measure: traffic.TrafficMeasure.ValueType) -> str:
    """The column that talkers are sorted by."""
    if measure == traffic.TRAFFIC_MEASURE_UNSPECIFIED:
        return "bytes"
    try:
        return traffic.TrafficMeasure.Name(measure).removeprefix("TRAFFIC_MEASURE_").lower()
    except ValueError:
        raise InvalidField("measure", f"{measure} is no measure") from None


def limit_of(limit: int) -> int:
    if limit < 0:
        raise InvalidField("limit", f"{limit} is negative; 0 means {DEFAULT_LIMIT}")
    return min(limit or DEFAULT_LIMIT, LARGEST_LIMIT)


def step_of(request: traffic.QueryTrafficRequest, asked: Range, kept: Kept) -> Step:
    """The step that is asked for; else the finest that is kept for so long and gives no more than GOOD_POINTS."""
    length = asked.end - asked.start
    if not request.HasField("step"):
        fitting = (
            step
            for step in Step
            if length <= GOOD_POINTS * step.value and asked.start.date() >= kept.get(step, date.min)
        )
        return next(fitting, Step.DAY)
    wanted = request.step.ToTimedelta()
    for step in Step:
        if step.value == wanted:
            if length > MOST_POINTS * wanted:
                raise InvalidField("step", f"{length // wanted} points are more than {MOST_POINTS}; take a longer step")
            return step
    raise InvalidField("step", f"{wanted.total_seconds():g} s is none of a minute, an hour, a day: 60, 3600, 86400 s")


def pieces(start: datetime, end: datetime, kept: Kept) -> Iterator[Piece]:
    """The range, in the coarsest steps that fit."""
    yield from _pieces(list(Step), Step.MINUTE.floor(start), Step.MINUTE.ceil(end), kept)


def _pieces(steps: Sequence[Step], start: datetime, end: datetime, kept: Kept) -> Iterator[Piece]:
    """`start` and `end` lie where rows of the first step begin."""
    step, coarser = steps[0], steps[1:]
    if start >= end:
        return
    if not coarser:
        yield Piece(step, start, end)
        return
    first = datetime.combine(kept.get(step, date.min), time(), UTC)
    head, tail = coarser[0].ceil(start), coarser[0].floor(end)
    if first > start:  # the rows at the start are gone: those of the next step stand for them
        head = coarser[0].floor(start)
    if first > max(tail, start):
        tail = coarser[0].ceil(end)
    if head >= tail:
        yield Piece(step, start, end)
        return
    if start < head:
        yield Piece(step, start, head)
    yield from _pieces(coarser, head, tail, kept)
    if tail < end:
        yield Piece(step, tail, end)


def growth(bytes_by_time: Sequence[tuple[datetime, int]], start: datetime, end: datetime) -> float | None:
    """From the first half of the time to the second, as a share; None where the first has none."""
    middle = start + (end - start) / 2
    before = sum(count for moment, count in bytes_by_time if moment < middle)
    after = sum(count for moment, count in bytes_by_time if moment >= middle)
    return (after - before) / before if before else None


@dataclass(frozen=True, slots=True)
class Told:
    """What the pipeline has said of itself."""

    complete_until: datetime | None
    time: datetime


def freshness(told: Told | None, now: datetime) -> traffic.TrafficFreshness:
    """How far the tables are; `now` by the clock of which `told` is."""
    found = traffic.TrafficFreshness()
    if told is None:
        found.problem = f"no pipeline has ever counted traffic here: {HOW_TO_START}"
        return found
    found.pipeline_time.FromDatetime(told.time)
    if told.complete_until is not None:
        found.complete_until.FromDatetime(told.complete_until)
    silent = now - told.time
    if silent > SILENT_AFTER:
        found.problem = f"no pipeline has been heard of for {int(silent.total_seconds())} s: {HOW_TO_START}"
    return found
