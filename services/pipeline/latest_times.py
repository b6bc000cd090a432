"""Whether a log is still the same, by the times of its records: a gateway's topic ids do not show it. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.pipeline.positions import NEW_FOLDER, Place, Position, TopicPosition, TopicReplacedError


def later_times(position: Position, topics: Iterable[str]) -> dict[Place, int]:
    """The times whose first offsets show whether the logs are still those of `position`.

    For each partition, this is the first time later than its latest record had.
    """
    return {
        (topic, partition): stamp.time_ms + 1
        for topic in topics
        for partition, stamp in position.get(topic, TopicPosition()).last.items()
    }


def replaced_by_times(position: Position, found: Mapping[Place, int]) -> dict[str, TopicReplacedError]:
    """The topics whose answers to `later_times` (-1: none) can't come from the same log."""
    replaced = {}
    for (topic, partition), offset in found.items():
        stamp = position[topic].last[partition]
        if 0 <= offset <= stamp.offset:
            replaced[topic] = TopicReplacedError(
                f"{topic}/{partition} has at offset {offset} a record of a later time than it had up to offset "
                f"{stamp.offset} before: it was created again, or a rule moved it to another cluster; {NEW_FOLDER}"
            )
    return replaced
