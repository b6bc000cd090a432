"""What is copied of each partition, and by which task. No I/O.

1. Ranges become stretches: offsets `start` up to `end` of a partition, told by its log and, where the archive is read,
   by what the archive holds of it. The end is where the log ended when the replay began; nothing is copied twice for
   being copied into what is read.
2. What neither holds is not copied. That is said, and no error: who asks for all from the beginning asks for what
   there is.
3. Partitions are spread over lanes, about as many offsets in each. A lane is one Spark task, one transactional id, one
   consumer, however many partitions it has: thousands of partitions need no thousands of producers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mesh.rpc import replays
from services.pipeline.copying.errors import CopyError, RefusedError
from services.pipeline.copying.notes import Note
from services.pipeline.copying.reading import Place
from services.pipeline.positions import PartitionLog, Span

NOWHERE = -1
"""What clusters and archives call the offset of a time behind the end."""
LANES_PER_SLOT = 4
"""So that a task that has less to do than it seemed makes room for another one."""
FEWEST_LANES = 16
"""Where partitions suffice: the replay may go on later on a larger cluster, with the same lanes."""
MOST_LANES = 512
"""Each is a transactional id, which brokers remember for a week."""
MOST_PARTITIONS = 10_000
"""Of one replay: control keeps how far each is, and hears of no more."""
Lane = TypeVar("Lane")


@dataclass(frozen=True, slots=True)
class Held:
    """What there is of one partition."""

    log: PartitionLog
    """In Kafka, up to the last stable offset."""
    archived: PartitionLog | None = None
    """In the archive, where that may be read."""
    high: int = 0
    """The end of the log with what is not committed yet."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is copied of one partition."""

    start: int
    end: int
    lost: int = 0
    """Offsets of it that nobody holds."""
    lost_until: int = 0
    """Where these end."""


@dataclass(frozen=True, slots=True)
class Times:
    """Offsets of the first records that are not older than the times which the ranges say."""

    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)


def check_number(partitions: int) -> None:
    """RefusedError where nobody could be told how far all of them are."""
    if partitions > MOST_PARTITIONS:
        raise RefusedError(
            f"{partitions} partitions are more than {MOST_PARTITIONS}; make several replays of fewer partitions"
        )


def asked(ranges: Iterable[replays.ReplayRange], counts: Mapping[str, int]) -> dict[Place, replays.ReplayRange]:
    """The range of each partition; `counts`: partitions of each topic. RefusedError for one that there is not."""
    found: dict[Place, replays.ReplayRange] = {}
    for each in ranges:
        count = counts[each.topic]
        if each.HasField("partition") and not 0 <= each.partition < count:
            raise RefusedError(
                f"topic {each.topic!r} has {count} partitions, from 0 to {count - 1}; {each.partition} is none of them"
            )
        for partition in [each.partition] if each.HasField("partition") else range(count):
            if (each.topic, partition) in found:
                raise RefusedError(f"{each.topic}/{partition} stands in two ranges; one range for each partition")
            found[each.topic, partition] = each
    return found


def stretch(place: Place, range_: replays.ReplayRange, held: Held, times: Times, *, archive_only: bool) -> Stretch:
    """What of a partition is copied."""
    log, archived = held.log, held.archived
    if archive_only:
        log = archived or PartitionLog(0, 0)
        archived = None
    first = min(log.start, archived.start) if archived is not None else log.start
    start, end = first, log.end
    match range_.WhichOneof("start"):
        case "start_offset":
            start = range_.start_offset
        case "start_time":
            start = _or(times.starts.get(place, NOWHERE), log.end)
    match range_.WhichOneof("end"):
        case "end_offset":
            end = min(range_.end_offset, max(held.high, log.end))
        case "end_time":
            end = min(_or(times.ends.get(place, NOWHERE), log.end), log.end)
    start = min(max(start, first), max(log.end, end))
    end = max(end, start)
    lost = 0 if archive_only else _missing(start, end, held)
    return Stretch(start, end, lost, min(held.log.start, end) if lost else 0)


def _missing(position: int, end: int, held: Held) -> int:
    """Offsets before the log's first one that the archive has not got either; Kafka's reader tells where there is none.

    A few may be no records, but marks of transactions.
    """
    if held.archived is None or position >= held.log.start:
        return 0
    return max(0, min(held.log.start, end) - max(held.archived.end, position))


def _or(offset: int, end: int) -> int:
    return end if offset == NOWHERE else offset


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to be read of a stretch: first from the archive, then from Kafka; None where nothing."""

    archived: Span | None
    in_kafka: Span | None


def left(place: Place, note: Note, held: Held, kafka_topic: str, *, archive_only: bool) -> Left:
    """What is left of a partition. CopyError: records that were planned are nowhere any more."""
    (topic, partition), position, end = place, note.position, note.end
    reached = max(held.high, held.log.end)
    if reached < end and not archive_only and position < end:
        raise CopyError(
            f"{topic}/{partition} ends at offset {reached}, and was to be copied up to {end}: it was truncated or "
            "created again meanwhile, and its offsets mean other records. Begin another replay for what it holds now"
        )
    if held.archived is None:
        return Left(None, Span(kafka_topic, partition, position, end) if position < end else None)
    boundary = end if archive_only else min(max(position, held.log.start), end)
    missing = 0 if archive_only else _missing(position, end, held)
    if missing and min(held.log.start, end) > note.lost_until:
        raise CopyError(
            f"{topic}/{partition}: {missing} offsets from {max(held.archived.end, position)} on are neither in Kafka, "
            f"which begins at {held.log.start}, nor in the archive; they were there when the replay began. Archive "
            "more often; a replay of what is left can begin behind them"
        )
    since, until = max(position, held.archived.start), min(boundary, held.archived.end)
    return Left(
        Span(topic, partition, since, until) if since < until else None,
        Span(kafka_topic, partition, boundary, end) if boundary < end else None,
    )


def lane_count(partitions: int, slots: int, *, limited: bool) -> int:
    """How many lanes a replay gets; as many as run at once where a rate is shared between them."""
    wanted = slots if limited else max(FEWEST_LANES, LANES_PER_SLOT * slots)
    return max(1, min(partitions, wanted, MOST_LANES))


def lanes(sizes: Mapping[Place, int], count: int) -> dict[Place, int]:
    """The lane of each partition: the largest first, each to the lane that has least."""
    loads = [(0, 0, lane) for lane in range(count)]
    chosen = {}
    for place, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        load, partitions, lane = heapq.heappop(loads)
        chosen[place] = lane
        heapq.heappush(loads, (load + size, partitions + 1, lane))
    return chosen


def shares(rate: float, offsets: Mapping[Lane, int]) -> dict[Lane, float]:
    """Of a rate, what each lane may write, by the offsets that it has left: together never more, and they end together.

    0 is without a limit.
    """
    total = sum(offsets.values())
    return {lane: rate * left / total if total else rate for lane, left in offsets.items()}
