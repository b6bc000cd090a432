"""Bounded reading: which offsets a range of a topic means. No I/O, no Spark.

1. A bound is an offset, a time, or nothing. From a time on means: from the first record of that time or later, as Kafka
   finds it; up to a time means: up to the first one of that time or later, without it. Records of a partition need not
   be in the order of their times, so who must not get others filters on `timestamp` too.
2. Without an end, a range ends at the last stable offset: what is committed now. An end that was told, as offset or as
   time, is meant: what an open transaction holds back before it is waited for, and its end is looked up among all
   records, not among the stable ones.
3. An offset before the log's start is an error unless loss is accepted, one behind its end is an error always. A time
   asks for what there is, so retention may have taken what was older.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.pipeline.positions import RecordsLostError, Span, StreamError

SMALLEST_PIECE = 10_000
"""Offsets that are worth a task of their own."""
EPOCH = datetime.fromtimestamp(0, UTC)

Bound = int | datetime | None


@dataclass(frozen=True, slots=True)
class Range:
    """What to read of a topic."""

    topic: str
    start: Bound = None
    """None: from the first record on. A datetime has a time zone."""
    end: Bound = None
    """Without it itself. None: up to what is committed now."""
    partitions: frozenset[int] | None = None
    """None: all."""
    cluster: str = ""
    """Empty: of each cluster that is read."""

    def times_ms(self) -> set[int]:
        """The times that have to be looked up."""
        return {milliseconds(bound) for bound in (self.start, self.end) if isinstance(bound, datetime)}


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """What a range needs to know of a partition."""

    start: int
    """Of the log."""
    stable_end: int
    """The last stable offset."""
    end: int
    """Of the log: the high watermark."""
    at: Mapping[int, int]
    """The first offset of a time (in ms) or later, the end of the log where there is none."""


def milliseconds(time: datetime) -> int:
    """Since the epoch; the first whole one that is not before `time`."""
    return math.ceil((time - EPOCH) / timedelta(milliseconds=1))


def span_of(asked: Range, topic: str, partition: int, log: PartitionBounds, *, accept_loss: bool = False) -> Span:
    """The offsets that `asked` means in one partition; StreamError for those that can't be read."""
    start, end = asked.start, asked.end
    begin = log.start if start is None else log.at[milliseconds(start)] if isinstance(start, datetime) else start
    until = log.stable_end if end is None else log.at[milliseconds(end)] if isinstance(end, datetime) else end
    place = f"{topic}/{partition}"
    if begin < log.start and not accept_loss:
        raise RecordsLostError(
            f"{place} begins at offset {log.start}, {begin} is asked for: retention took {log.start - begin} offsets; "
            "go on without them with --accept-loss"
        )
    if isinstance(end, int) and until > log.end:
        raise StreamError(f"{place} ends at offset {log.end}, it is to be read up to {until}")
    return Span(topic, partition, max(begin, log.start), max(begin, log.start, until))


def cut(spans: Iterable[Span], pieces: int) -> list[Span]:
    """About as many as `pieces`, so that each core has something to do; a partition may be several of them."""
    whole = [span for span in spans if span.start < span.end]
    total = sum(span.end - span.start for span in whole)
    most = max(SMALLEST_PIECE, math.ceil(total / max(pieces, 1)))
    return [
        Span(span.topic, span.partition, start, min(start + size, span.end))
        for span in whole
        for size in [math.ceil((span.end - span.start) / math.ceil((span.end - span.start) / most))]
        for start in range(span.start, span.end, size)
    ]


def shares(spans: Iterable[Span], count: int) -> list[list[Span]]:
    """The spans as `count` shares with about as many offsets each, or fewer; those of a partition stay in their order,
    and parts of it are shared out where that is more even.
    """
    whole = [span for span in spans if span.start < span.end]
    most = math.ceil(sum(span.end - span.start for span in whole) / max(count, 1))
    found: list[list[Span]] = []
    room = 0
    for span in whole:
        start = span.start
        while start < span.end:
            if not room:
                found.append([])
                room = most
            end = min(start + room, span.end)
            found[-1].append(Span(span.topic, span.partition, start, end))
            room -= end - start
            start = end
    return found
