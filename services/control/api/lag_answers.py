"""Answers about the lag of a group over time: which samples, which points, which page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import topics
from services.control.api import pages
from services.control.domain.errors import InvalidField, Unknown
from services.control.domain.topics import lag
from services.control.domain.topics.lag import LONGEST_GAP_S, Course, Lag, Sample
from services.control.domain.topics.lag_samples import KEPT, LASTING, LASTING_KEPT, Round
from services.control.steady_clock import Clock
from services.control.store.lag import LagTables, Partition

DEFAULT_RANGE: Final = timedelta(hours=6)
MOST_READ: Final = 600_000
"""States of partitions that one page reads: a second of work."""
SHORTEST_STEP_S: Final = 10.0
SILENT_AFTER: Final = timedelta(seconds=60)
"""Without samples for so long, somebody has to look."""


class LagAnswers:
    """Answers QueryLag from the samples."""

    def __init__(self, tables: LagTables, clock: Clock, interval_s: float, most_partitions: int) -> None:
        self._tables = tables
        self._clock = clock
        self._interval_s = interval_s
        self._most_partitions = most_partitions

    async def answer(self, group: str, request: topics.QueryLagRequest) -> topics.QueryLagResponse:
        now = self._clock()
        end = min(request.end_time.ToDatetime(UTC), now) if request.HasField("end_time") else now
        start = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else end - DEFAULT_RANGE
        if start >= end:
            raise InvalidField("start_time", f"{start.isoformat()} is not before the end, {end.isoformat()}")
        start = max(start, now - LASTING_KEPT - LASTING)
        if request.above < 0:
            raise InvalidField("above", f"{request.above} is negative")
        step = _step(request, (end - start).total_seconds())
        times = lag.steps(start.timestamp(), end.timestamp(), step)
        last = await self._tables.last_round()
        sampling = self._sampling(last, now)
        # a series without changes has a row in five minutes: the state at the start may be in the row before
        found = await self._tables.partitions(group, request.topic, start - LASTING, end)
        counts = Counter(topic for topic, _ in found)
        found = [each for each in found if not request.HasField("partition") or each[1] == request.partition]
        if not found:
            raise Unknown(request.name, self._why_nothing(group, request, sampling))
        size = min(pages.page_size(request.page_size), max(1, lag.MOST_POINTS_OF_A_PAGE // max(1, len(times))))
        keys = [f"{topic} {number:010d}" for topic, number in found]
        page, token = pages.cut(pages.listing_of("lag", request), found, keys, size, request.page_token)
        answer = topics.QueryLagResponse(next_page_token=token, total=len(found), sampling=sampling)
        answer.step.FromTimedelta(timedelta(seconds=step))
        read_partitions = sum(counts[topic] for topic in {topic for topic, _ in page})
        every = self._every(read_partitions, start, end)
        answer.resolution.FromTimedelta(every * LASTING or timedelta(seconds=self._interval_s))
        samples = await self._samples(group, page, start - LASTING, end, every)
        for topic, number in page:
            if known := samples.get((topic, number)):  # a short life may have no row that lasts
                shape = answer.partitions.add(topic=topic, partition=number)
                course = Course(self._held(known, last, end), LONGEST_GAP_S * max(1, every))
                _tell(shape, course, times, request.above)
        return answer

    def _every(self, partitions: int, start: datetime, end: datetime) -> int:
        """0: all samples are read; 1: one in five minutes; n: each n-th of these, so that MOST_READ is enough."""
        length = end - start
        is_young = self._clock() - start <= KEPT
        if is_young and partitions * (length / timedelta(seconds=self._interval_s)) <= MOST_READ:
            return 0
        return max(1, ceil(partitions * (length / LASTING) / MOST_READ))

    async def _samples(
        self, group: str, page: Collection[Partition], start: datetime, end: datetime, every: int
    ) -> Mapping[Partition, Sequence[Sample]]:
        found = await self._tables.samples(group, page, start, end, every)
        if every:  # what changed since the last of them is the present
            recent = max(start, end - 2 * LASTING)
            for each, samples in (await self._tables.samples(group, page, recent, end, 0)).items():
                known = found.setdefault(each, [])
                known[:] = [*(there for there in known if there.time < samples[0].time), *samples]
        return found

    def _held(self, samples: Sequence[Sample], last: Round | None, end: datetime) -> Sequence[Sample]:
        """The samples, up to the last round if nothing has changed since: such a round stores no row."""
        before = samples[-1]
        if last is None or last.problem:
            return samples
        held = min(last.time, end).timestamp()
        longest = LASTING.total_seconds() + self._interval_s
        return [*samples, before._replace(time=held)] if 0 < held - before.time <= longest else samples

    def _sampling(self, last: Round | None, now: datetime) -> topics.LagSampling:
        if not self._most_partitions:
            return topics.LagSampling(problem="control takes no samples: its setting LAG_PARTITIONS is 0")
        if last is None:
            return topics.LagSampling(problem="no control has ever taken samples of lag")
        shape = topics.LagSampling(
            groups=last.groups, partitions=last.partitions, left_out_groups=last.left_out_groups,
            left_out_partitions=last.left_out_partitions, problem=last.problem,
        )  # fmt: skip
        shape.time.FromDatetime(last.time)
        silent = now - last.time
        if silent > SILENT_AFTER + timedelta(seconds=self._interval_s):
            shape.problem = f"no control has taken samples of lag for {int(silent.total_seconds())} s"
        return shape

    def _why_nothing(self, group: str, request: topics.QueryLagRequest, sampling: topics.LagSampling) -> str:
        where = f" of partition {request.partition}" if request.HasField("partition") else ""
        where += f" of topic {request.topic!r}" if request.topic else ""
        why = sampling.problem or f"control samples every {self._interval_s:g} s a group that has committed offsets"
        left = f"; {sampling.left_out_groups} groups are beyond its bound" if sampling.left_out_groups else ""
        return f"control has no sample{where} of group {group!r} in that time: {why}{left}"


def _step(request: topics.QueryLagRequest, length_s: float) -> float:
    if not request.HasField("step"):
        return lag.step_s(length_s)
    step = request.step.ToTimedelta().total_seconds()
    if step < SHORTEST_STEP_S:
        raise InvalidField("step", f"{step:g} s is less than {SHORTEST_STEP_S:g} s")
    if length_s > lag.MOST_POINTS * step:
        points = int(length_s // step)
        raise InvalidField("step", f"{points} points are more than {lag.MOST_POINTS}; take a longer step")
    return step


def _tell(shape: topics.PartitionLag, course: Course, times: Sequence[float], above: int) -> None:
    shape.points.extend(map(_point, course.at(times)))
    shape.last.CopyFrom(_point(course.last))
    if (growing := course.growing_since()) is not None:
        shape.growing_since.CopyFrom(_timestamp(growing.time))
        shape.growing_from = growing.records
    if (since := course.above_since(above)) is not None:
        shape.above_since.CopyFrom(_timestamp(since.time))
        shape.above_for_longer = since.for_longer
    rates = course.rates()
    shape.written_per_second, shape.passed_per_second = rates.written, rates.passed
    if (catch_up := course.catch_up_s()) is not None:
        shape.catch_up.FromTimedelta(timedelta(seconds=catch_up))


def _point(of: Lag) -> topics.LagPoint:
    return topics.LagPoint(time=_timestamp(of.time), records=of.records, seconds=of.seconds, at_least=of.at_least)


def _timestamp(seconds: float) -> Timestamp:
    made = Timestamp()
    made.FromMilliseconds(round(seconds * 1000))
    return made
