"""The position of a stream of topics, and the end of its next batch. No I/O, no Spark.

A position has one entry for each topic. `position_json` shows the form in which Spark keeps it in the checkpoint.

1. `next` is the next offset to read, for each known partition.
2. A batch is the span between two positions. If the earlier position lacks a partition, the batch begins at the offset
   in `from` of the later position. So a batch that is run again after a crash reads exactly the same records.
3. A topic that is new to the stream begins at the start of its log. A partition that was *added* to a known topic
   begins at 0: records of it that retention has taken meanwhile are lost.
4. A loss is an error and is never skipped silently. Losses are: retention passed `next`; a log ends before `next`; a
   partition disappeared; the topic has another id, because it was created again. Offsets then mean other records. An
   operator may accept the first kind of loss; `from` then has the offset at which reading continues. If a caller
   identifies records by their content (`accept_replaced`), it may read a replaced topic as a new one, from its start.
5. An id that a gateway derived from the topic's name does not show a replacement. For such ids, `last` is the record
   with the latest time of each partition. In the same log, no record before its offset can have a later time.
6. A topic that is no longer requested keeps its entry, so that reading resumes there when it is requested again.
7. A topic that is read from its start, because another topic took its name, begins its next `generation`. Records of
   different generations of a topic may have the same partition and offset. Generation 0 is not written.
8. One topic with a problem must not stop the others: `problems` names the topics that `advance` would refuse, so that
   the caller can leave them out.
9. A rule may move a topic to another cluster, and back. Behind a gateway, `at` names the topic's cluster. The entry
   keeps the topic's `former` positions by cluster: a topic that is back continues there, in its generation of that
   cluster. Without `accept_replaced`, a move is an error like any replacement.
10. A topic may leave a cluster before all its records there are read. `left_records` reads the rest there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NEW_FOLDER = "read it into a new folder"
Place = tuple[str, int]
"""A topic and one of its partitions."""


class StreamError(Exception):
    """The stream can't continue as required; the message says where and why, in one line."""


class UnreachableError(StreamError):
    """A cluster or a store does not answer, or answers with an error; another attempt may succeed."""


class RecordsLostError(StreamError):
    """The next records of the stream do not exist any more."""


class TopicReplacedError(StreamError):
    """The topic is not the topic of the checkpoint."""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The offsets of a partition: from `start` up to `end`, which is the last stable offset."""

    start: int
    end: int


class Stamp(NamedTuple):
    """A record's offset and time."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The current state of a topic on its cluster; the id is empty if the cluster does not report ids."""

    topic_id: str
    partitions: Mapping[int, PartitionLog]
    last: Mapping[int, Stamp] = field(default_factory=dict)
    """The records with the latest time, if they were requested."""
    at: str = ""
    """The cluster of the topic, as a gateway shows it; empty if nobody shows it."""


@dataclass(frozen=True, slots=True)
class Stay:
    """The position of a topic at a cluster from which a rule has moved it."""

    next: Mapping[int, int]
    last: Mapping[int, Stamp]
    generation: int
    starts: Mapping[int, int] = field(default_factory=dict)
    until: Mapping[int, int] | None = None
    """The ends of the topic's logs there, when they were first seen after the move; None until then."""
    topic_id: str = ""
    """The topic's id there, as the cluster itself reported it then."""
    place: str = ""
    """The place that `left_records` reads, as {cluster}/{topic's name there}; empty if it is not known yet."""

    @property
    def is_done(self) -> bool:
        """Whether all records are read that the topic left there."""
        return self.until is not None and all(self.next.get(each, 0) >= end for each, end in self.until.items())


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """A topic's entry in a position: see the top of this file."""

    topic_id: str = ""
    next: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    last: Mapping[int, Stamp] = field(default_factory=dict)
    generation: int = 0
    at: str = ""
    former: Mapping[str, Stay] = field(default_factory=dict)
    planned_ms: int = 0
    """Unix time (ms) at which the topic's last batch was planned, if `auditing/data_source.py` planned it; else 0."""

    def without_starts(self) -> TopicPosition:
        """The entry for a batch that does not read the topic."""
        former = {cluster: dataclasses.replace(stay, starts={}) for cluster, stay in self.former.items()}
        return dataclasses.replace(self, starts={}, former=former)

    def has_moved(self, log: TopicLog) -> bool:
        """Whether the log is that of another cluster."""
        return bool(self.at and log.at) and self.at != log.at

    def back_at(self, cluster: str) -> TopicPosition | None:
        """The entry of a topic that is at this cluster again; None if the topic was not there before."""
        stays = self.stays
        stay = stays.pop(cluster, None)
        if stay is None:
            return None
        return TopicPosition(self.topic_id, stay.next, stay.next, stay.last, stay.generation, cluster, stays)

    @property
    def stays(self) -> dict[str, Stay]:
        """The former positions, when the topic has left its cluster."""
        return {**self.former, self.at: Stay(self.next, self.last, self.generation)}

    @property
    def next_generation(self) -> int:
        """The generation of a topic that is read from its start."""
        return 1 + max([self.generation, *(stay.generation for stay in self.former.values())])


Position = Mapping[str, TopicPosition]


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition, from `start` up to `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def spans(start: Position, end: Position) -> Iterator[Span]:
    """The spans between two positions; a span at a former cluster names its topic {cluster}/{topic}."""
    for topic, entry in end.items():
        before = start.get(topic, TopicPosition())
        yield from _between(topic, before, entry)
        for cluster, stay in entry.former.items():
            if cluster in before.former:
                yield from _between(f"{cluster}/{topic}", before.former[cluster], stay)


def _between(name: str, before: TopicPosition | Stay, after: TopicPosition | Stay) -> Iterator[Span]:
    for partition, until in after.next.items():
        begin = after.starts[partition] if partition in after.starts else before.next[partition]
        if begin < until:
            yield Span(name, partition, begin, until)


def advance(
    start: Position,
    logs: Mapping[str, TopicLog],
    *,
    max_rows: int | None = None,
    accept_loss: bool = False,
    accept_loss_of: Collection[str] = (),
    accept_replaced: bool = False,
    replaced: Collection[str] = (),
) -> Position:
    """The end of the batch after `start`: at most `max_rows` offsets, shared fairly between partitions.

    Returns `start` itself if there is nothing to read. Loss is accepted for all topics, or for some. `replaced` names
    topics whose name another topic has now, as the caller knows. Raises RecordsLostError and TopicReplacedError.
    """
    # a topic that is left out now must not keep the `from` of its last batch
    before = {topic: entry.without_starts() for topic, entry in start.items()}
    entries = {
        topic: _entry(topic, before.get(topic), log, accept_loss or topic in accept_loss_of, accept_replaced, replaced)
        for topic, log in logs.items()
    }
    lags = {
        (topic, partition): log.partitions[partition].end - begin
        for topic, log in logs.items()
        for partition, begin in entries[topic].next.items()
    }
    steps = lags if max_rows is None else fair_shares(lags, max_rows)
    position = dict(before)
    for topic, entry in entries.items():
        ends = {partition: begin + steps[topic, partition] for partition, begin in entry.next.items()}
        position[topic] = dataclasses.replace(entry, next=ends)
    return start if _stands_still(start, position) else position


def problems(
    start: Position, logs: Mapping[str, TopicLog], *, accept_loss: Collection[str] = (), accept_replaced: bool = False
) -> dict[str, StreamError]:
    """The topics that `advance` would refuse, with the reason; it would read the other topics."""
    found: dict[str, StreamError] = {}
    for topic, log in logs.items():
        try:
            _entry(topic, start.get(topic), log, topic in accept_loss, accept_replaced, ())
        except StreamError as error:
            found[topic] = error
    return found


def as_of(position: Position, logs: Mapping[str, TopicLog]) -> Position:
    """The position in these logs: a topic that has moved is where it stood there, or absent if it was not there."""
    found: dict[str, TopicPosition] = {}
    for topic, entry in position.items():
        log = logs.get(topic)
        here = entry.back_at(log.at) if log is not None and entry.has_moved(log) else entry
        if here is not None:
            found[topic] = here
    return found


def replaced_topics(expected: Position, logs: Mapping[str, TopicLog]) -> dict[str, TopicReplacedError]:
    """The topics of `expected` that were replaced or deleted, with the reason."""
    found = {}
    for topic, entry in expected.items():
        if topic not in logs:
            found[topic] = TopicReplacedError(f"topic {topic} is gone: it was deleted, or a rule moved it")
            continue
        try:
            offsets_in(topic, entry, logs[topic], accept_loss=True)
        except TopicReplacedError as error:
            found[topic] = error
    return found


def _stands_still(start: Position, position: Position) -> bool:
    """Whether there is nothing to read and nothing to note; a different `from` in `start` does not count."""
    return all(
        topic in start
        and (start[topic].next, start[topic].topic_id, start[topic].generation, start[topic].at)
        == (entry.next, entry.topic_id, entry.generation, entry.at)
        for topic, entry in position.items()
    )


def _entry(
    topic: str,
    before: TopicPosition | None,
    log: TopicLog,
    accept_loss: bool,
    accept_replaced: bool,
    replaced: Collection[str],
) -> TopicPosition:
    """The topic's entry at the start of its next batch."""
    from_start = {partition: each.start for partition, each in log.partitions.items()}
    if before is None:
        return TopicPosition(log.topic_id, from_start, from_start, log.last, at=log.at)
    topic_id = log.topic_id or before.topic_id
    moved = before.has_moved(log)
    former = {name: stay for name, stay in (before.stays if moved else before.former).items() if name != log.at}
    anew = TopicPosition(topic_id, from_start, from_start, log.last, before.next_generation, log.at, former)
    if moved and accept_replaced:
        back = before.back_at(log.at)
        if back is None or topic in replaced:
            return anew
        before = back
    elif topic in replaced:
        return anew
    try:
        begins = offsets_in(topic, before, log, accept_loss)
    except TopicReplacedError:
        if accept_replaced:
            return anew
        raise
    starts = {each: begin for each, begin in begins.items() if moved or before.next.get(each) != begin}
    return dataclasses.replace(
        before, topic_id=topic_id, next=begins, starts=starts, last={**before.last, **log.last}, at=log.at or before.at
    )


def offsets_in(topic: str, before: TopicPosition, log: TopicLog, accept_loss: bool) -> dict[int, int]:
    """The offsets at which reading continues in a known topic. TopicReplacedError, RecordsLostError."""
    if before.has_moved(log):
        raise TopicReplacedError(f"a rule moved topic {topic} from cluster {before.at} to {log.at}; {NEW_FOLDER}")
    if before.topic_id and log.topic_id and before.topic_id != log.topic_id:
        raise TopicReplacedError(
            f"topic {topic} has id {log.topic_id}, the checkpoint knows it as {before.topic_id}: it was created again, "
            f"or a rule moved it to another cluster; {NEW_FOLDER}"
        )
    if gone := before.next.keys() - log.partitions.keys():
        raise TopicReplacedError(
            f"topic {topic} has {len(log.partitions)} partitions, the checkpoint also knows {sorted(gone)}: "
            f"it was created again; {NEW_FOLDER}"
        )
    begins = {}
    for partition, each in log.partitions.items():
        begin = before.next.get(partition, 0)
        if begin > each.end:
            raise TopicReplacedError(
                f"{topic}/{partition} ends at offset {each.end}, the checkpoint stands at {begin}: it was truncated or "
                f"created again; {NEW_FOLDER}"
            )
        if begin < each.start and not accept_loss:
            raise RecordsLostError(
                f"{topic}/{partition} begins at offset {each.start}, the checkpoint stands at {begin}: retention took "
                f"{each.start - begin} offsets before they were read; go on without them with --accept-loss"
            )
        begins[partition] = max(begin, each.start)
    return begins


def fair_shares(lags: Mapping[tuple[str, int], int], rows: int) -> dict[tuple[str, int], int]:
    """Divides `rows` among partitions: none gets more than it has; large ones get what small ones leave."""
    shares = {}
    waiting = len(lags)
    for place, lag in sorted(lags.items(), key=lambda item: (item[1], item[0])):
        shares[place] = min(lag, rows // waiting)
        rows -= shares[place]
        waiting -= 1
    return shares


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
