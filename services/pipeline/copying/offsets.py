"""The offsets of each partition that are copied, and the lane that copies them. No I/O.

1. Ranges become stretches: offsets `start` up to `end` of a partition, limited by the offsets of its log and of the
   archive, if that is read. The end is at most the end of the log when the replay began. So records that the replay
   itself writes to a source are not copied again.
2. Offsets that neither the log nor the archive holds are not copied. The report states their number, and this is no
   error: a replay of all records means the existing records.
3. Partitions are spread over lanes, with about as many offsets in each. A lane is one Spark task with one transactional
   id and one consumer, for any number of partitions. So thousands of partitions need few producers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mesh.rpc import replays
from services.pipeline.copying.errors import CopyError, RefusedError
from services.pipeline.copying.notes import Note
from services.pipeline.kafka.positions import PartitionLog, Place, Span

NOWHERE = -1
"""The offset that clusters and archives return for a time behind the end."""
LANES_PER_SLOT = 4
"""More lanes than slots, so that a lane that ends early makes room for another lane."""
FEWEST_LANES = 16
"""The least number of lanes if there are enough partitions: a larger cluster may resume the replay with them."""
MOST_LANES = 512
"""Each lane is a transactional id, which brokers remember for a week."""
MOST_PARTITIONS = 10_000
"""Limit for one replay: control stores the progress of each partition, and accepts no more of them."""
Lane = TypeVar("Lane")


@dataclass(frozen=True, slots=True)
class Held:
    """The offsets that Kafka and the archive hold of one partition."""

    log: PartitionLog
    """Offsets in Kafka, up to the last stable offset."""
    archived: PartitionLog | None = None
    """Offsets in the archive, if the copy may read it."""
    high: int = 0
    """The high watermark, which includes uncommitted records."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The offsets of one partition that are copied."""

    start: int
    end: int
    lost: int = 0
    """Number of these offsets that neither Kafka nor the archive holds."""
    lost_until: int = 0
    """End of the lost offsets."""


@dataclass(frozen=True, slots=True)
class Times:
    """Offsets of the first records that are not older than the times of the ranges."""

    starts: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)


def check_number(partitions: int) -> None:
    """RefusedError if there are more partitions than control accepts in reports."""
    if partitions > MOST_PARTITIONS:
        raise RefusedError(
            f"{partitions} partitions are more than {MOST_PARTITIONS}; make several replays of fewer partitions"
        )


def asked(ranges: Iterable[replays.ReplayRange], counts: Mapping[str, int]) -> dict[Place, replays.ReplayRange]:
    """The range of each partition; `counts`: partitions of each topic. RefusedError for a missing partition."""
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
    """The offsets of a partition that are copied."""
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
    """Number of offsets before the start of the log that the archive lacks too; 0 without an archive.

    Without an archive, the reader of Kafka reports the loss. Some of these offsets may be transaction markers and no
    records.
    """
    if held.archived is None or position >= held.log.start:
        return 0
    return max(0, min(held.log.start, end) - max(held.archived.end, position))


def _or(offset: int, end: int) -> int:
    return end if offset == NOWHERE else offset


@dataclass(frozen=True, slots=True)
class Left:
    """The spans of a stretch that are still to be read: first from the archive, then from Kafka; None if empty."""

    archived: Span | None
    in_kafka: Span | None


def left(place: Place, note: Note, held: Held, kafka_topic: str, *, archive_only: bool) -> Left:
    """The spans that are left of a partition. CopyError: planned records have disappeared."""
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
    """The number of lanes of a replay; with a limited rate, only as many as run at once."""
    wanted = slots if limited else max(FEWEST_LANES, LANES_PER_SLOT * slots)
    return max(1, min(partitions, wanted, MOST_LANES))


def lanes(sizes: Mapping[Place, int], count: int) -> dict[Place, int]:
    """The lane of each partition: the largest partitions first, each to the lane with the least offsets."""
    loads = [(0, 0, lane) for lane in range(count)]
    chosen = {}
    for place, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        load, partitions, lane = heapq.heappop(loads)
        chosen[place] = lane
        heapq.heappush(loads, (load + size, partitions + 1, lane))
    return chosen


def shares(rate: float, offsets: Mapping[Lane, int]) -> dict[Lane, float]:
    """The share of each lane in the rate, by the offsets that are left; so all lanes end at the same time.

    A rate of 0 means no limit.
    """
    total = sum(offsets.values())
    return {lane: rate * left / total if total else rate for lane, left in offsets.items()}
