"""How far a position is behind the logs, and what retention took before it was read. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.pipeline.kafka.positions import Position, Span, TopicLog


def lost_spans(position: Position, logs: Mapping[str, TopicLog]) -> list[Span]:
    """The spans that retention took before they were read."""
    return [
        Span(topic, partition, position[topic].next.get(partition, 0), each.start)
        for topic, log in logs.items()
        if topic in position
        for partition, each in log.partitions.items()
        if position[topic].next.get(partition, 0) < each.start
    ]


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a position behind the logs."""

    behind: int
    """Number of existing offsets that are not read yet."""
    spare: int | None
    """The least number of offsets, over partitions, that retention can delete before an unread offset.

    Below 0 if retention has deleted unread offsets. None if nothing waits to be read.
    """

    def __add__(self, other: Lag) -> Lag:
        """The lag of both together."""
        known = [each for each in (self.spare, other.spare) if each is not None]
        return Lag(self.behind + other.behind, min(known, default=None))


def lag_of(position: Position, logs: Mapping[str, TopicLog]) -> Lag:
    """The lag; for a topic that nobody has read yet, all its offsets count."""
    behind, spare = 0, []
    for topic, log_ in logs.items():
        reached = position[topic].next if topic in position else {}
        for partition, each in log_.partitions.items():
            at = reached.get(partition, each.start)
            behind += max(each.end - at, 0)
            if at < each.end:
                spare.append(at - each.start)
    return Lag(behind, min(spare, default=None))
