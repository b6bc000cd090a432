"""Bounded reading: the offsets that a range of a topic means. No I/O, no Spark.

1. A bound is an offset, a time, or nothing. A start time means: from the first record of that time or later, as Kafka
   finds it. An end time means: up to the first record of that time or later, exclusive. The records of a partition need
   not be in the order of their times. So a caller that must not get records of other times also filters on `timestamp`.
2. Without an end, a range ends at the last stable offset, which is the end of the committed records. With an explicit
   end, as offset or as time, the reader waits for the records that an open transaction holds back before the end. An
   end time is looked up among all records, and not only among the stable ones.
3. An offset before the log's start is an error unless loss is accepted. An offset behind its end is always an error. A
   time means the existing records, so retention may have taken older ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from services.pipeline.kafka.positions import RecordsLostError, Span, StreamError

SMALLEST_PIECE = 10_000
"""The least number of offsets for a task of its own."""
EPOCH = datetime.fromtimestamp(0, UTC)

Bound = int | datetime | None


@dataclass(frozen=True, slots=True)
class Range:
    """The records to read of a topic."""

    topic: str
    start: Bound = None
    """None: from the first record on. A datetime has a time zone."""
    end: Bound = None
    """Exclusive. None: up to the end of the committed records."""
    partitions: frozenset[int] | None = None
    """None: all."""
    cluster: str = ""
    """Empty: each cluster of the source."""

    def times_ms(self) -> set[int]:
        """The times whose offsets have to be looked up."""
        return {milliseconds(bound) for bound in (self.start, self.end) if isinstance(bound, datetime)}


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The offsets of a partition that a range needs."""

    start: int
    """Start of the log."""
    stable_end: int
    """The last stable offset."""
    end: int
    """End of the log: the high watermark."""
    at: Mapping[int, int]
    """For a time (in ms), the first offset of this time or later; the end of the log if there is none."""


def milliseconds(time: datetime) -> int:
    """Milliseconds since the epoch, rounded up."""
    return math.ceil((time - EPOCH) / timedelta(milliseconds=1))


def span_of(asked: Range, topic: str, partition: int, log: PartitionBounds, *, accept_loss: bool = False) -> Span:
    """The offsets of `asked` in one partition; StreamError if they can't be read."""
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
    """Cuts the spans into about `pieces` pieces, so that each core has work; a partition may give several pieces."""
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
    """Divides the spans into at most `count` shares with about as many offsets each.

    The spans of a partition stay in their order. A span is cut if this makes the shares more even.
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
