"""Questions about traffic: the permitted questions, the tables that answer them, and the form of the answers.

The coarsest steps that fit answer a range: whole days, then whole hours, then the minutes at its ends. So the answer
for an hour reads minutes, and the answer for a year 365 days and a little. If a part of the range is older than the
rows of a finer step, the whole hour or day around it counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum

from mesh.rpc import traffic
from services.control.domain.errors import InvalidField

LAST_HOUR, LAST_DAY = timedelta(hours=1), timedelta(hours=24)
"""The range of an answer if the request gives no time: for the top talkers, and for the course of the traffic."""
DEFAULT_LIMIT, LARGEST_LIMIT = 10, 1000
GOOD_POINTS, MOST_POINTS = 200, 5_000
SILENT_AFTER = timedelta(seconds=60)
"""A pipeline reports its progress every ten seconds or so."""
HOW_TO_START = "start `kafka-mesh pipeline serve`, or `kafka-mesh pipeline run traffic --continuous`"


class Step(Enum):
    """The period of a table's row; the value is its length."""

    MINUTE = timedelta(minutes=1)
    HOUR = timedelta(hours=1)
    DAY = timedelta(days=1)

    def floor(self, moment: datetime) -> datetime:
        """The start of the minute, hour or day that `moment` is in."""
        since = moment - datetime.fromtimestamp(0, UTC)
        return moment - since % self.value

    def ceil(self, moment: datetime) -> datetime:
        """The start of the next minute, hour or day; `moment` itself if one begins right then."""
        floor = self.floor(moment)
        return floor if floor == moment else floor + self.value


_HasTimes = traffic.TopTalkersRequest | traffic.QueryTrafficRequest
Kept = Mapping[Step, date]
"""The first day for which a step has rows; a step that is absent has rows for all days."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a range that one step answers; it begins and ends at the edge of a row."""

    step: Step
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Range:
    """The clients and the time of a question."""

    filter: Mapping[str, str]
    """Column -> the text that the column must hold."""
    start: datetime
    end: datetime


def range_of(asked: traffic.TrafficFilter, request: _HasTimes, now: datetime, default: timedelta) -> Range:
    """The range of a request; InvalidField if its end is not after its start."""
    end = request.end_time.ToDatetime(UTC) if request.HasField("end_time") else now
    start = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else end - default
    if start >= end:
        raise InvalidField("end_time", f"{end.isoformat()} is not after start_time, {start.isoformat()}")
    return Range({field.name: value for field, value in asked.ListFields()}, start, end)


def columns_of(dimensions: Sequence[traffic.TrafficDimension.ValueType]) -> list[str]:
    """The columns that distinguish talkers."""
    known = {
        number: name.removeprefix("TRAFFIC_DIMENSION_").lower() for name, number in traffic.TrafficDimension.items()
    }
    if not dimensions:
        raise InvalidField("by", f"names no dimension; possible are {', '.join(list(known.values())[1:])}")
    for place, each in enumerate(dimensions):
        if each == traffic.TRAFFIC_DIMENSION_UNSPECIFIED or each not in known:
            raise InvalidField(
                f"by[{place}]", f"{each} is no dimension; possible are {', '.join(list(known.values())[1:])}"
            )
        if each in dimensions[:place]:
            raise InvalidField(f"by[{place}]", f"{known[each]} is named twice")
    return [known[each] for each in dimensions]


def measure_of(measure: traffic.TrafficMeasure.ValueType) -> str:
    """The column by which talkers are sorted."""
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
    """The requested step; else the finest step that has rows for so long and gives at most GOOD_POINTS points."""
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
    """`start` and `end` are at the start of rows of the first step."""
    step, coarser = steps[0], steps[1:]
    if start >= end:
        return
    if not coarser:
        yield Piece(step, start, end)
        return
    first = datetime.combine(kept.get(step, date.min), time(), UTC)
    head, tail = coarser[0].ceil(start), coarser[0].floor(end)
    if first > start:  # the rows at the start are deleted: the rows of the next step replace them
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
    """The growth from the first half of the time to the second, as a share; None if the first half has no bytes."""
    middle = start + (end - start) / 2
    before = sum(count for moment, count in bytes_by_time if moment < middle)
    after = sum(count for moment, count in bytes_by_time if moment >= middle)
    return (after - before) / before if before else None


@dataclass(frozen=True, slots=True)
class Told:
    """The pipeline's report about itself."""

    complete_until: datetime | None
    time: datetime


def freshness(told: Told | None, now: datetime) -> traffic.TrafficFreshness:
    """How far the tables are behind; `now` is a time of the same clock as `told`."""
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
