"""The position of a stream of topics, and the end of its next batch. No I/O, no Spark.

Spark keeps a position in the checkpoint as JSON, one entry for each topic:

    {"apples": {"id": "WfM1...", "next": {"0": 120, "1": 98}, "from": {"1": 0}, "last": {"0": [119, 1790000000000]}}}

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
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
    """Unix time (ms) at which the topic's last batch was planned, if its source notes this (`event_source`); else 0."""

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


def parse(document: Mapping[str, Any]) -> Position:
    """A position from its JSON form."""
    return {
        topic: TopicPosition(
            entry["id"],
            _by_number(entry["next"]),
            _by_number(entry["from"]),
            _stamps(entry),
            entry.get("generation", 0),
            entry.get("at", ""),
            {
                cluster: Stay(_by_number(stay["next"]), _stamps(stay), stay.get("generation", 0))
                for cluster, stay in entry.get("former", {}).items()
            },
            planned_ms=entry.get("planned", 0),
        )
        for topic, entry in document.items()
    }


def _stamps(entry: Mapping[str, Any]) -> dict[int, Stamp]:
    return {int(partition): Stamp(*stamp) for partition, stamp in entry.get("last", {}).items()}


def _by_number(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def render(position: Position) -> dict[str, Any]:
    """The JSON form. Spark compares positions as text, so equal positions have equal text."""
    return {
        topic: {"id": entry.topic_id, "from": _by_text(entry.starts)}
        | _rendered(entry)
        | ({"at": entry.at} if entry.at else {})
        | ({"former": {name: _rendered(stay) for name, stay in sorted(entry.former.items())}} if entry.former else {})
        | ({"planned": entry.planned_ms} if entry.planned_ms else {})
        for topic, entry in sorted(position.items())
    }


def _rendered(entry: TopicPosition | Stay) -> dict[str, Any]:
    last = {str(partition): list(stamp) for partition, stamp in sorted(entry.last.items())}
    return (
        {"next": _by_text(entry.next)}
        | ({"last": last} if last else {})
        | ({"generation": entry.generation} if entry.generation else {})
    )


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def spans(start: Position, end: Position) -> Iterator[Span]:
    """The spans between two positions."""
    for topic, entry in end.items():
        before = start.get(topic, TopicPosition()).next
        for partition, until in entry.next.items():
            begin = entry.starts[partition] if partition in entry.starts else before[partition]
            if begin < until:
                yield Span(topic, partition, begin, until)


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
    entries = {
        topic: _entry(topic, start.get(topic), log, accept_loss or topic in accept_loss_of, accept_replaced, replaced)
        for topic, log in logs.items()
    }
    lags = {
        (topic, partition): log.partitions[partition].end - begin
        for topic, log in logs.items()
        for partition, begin in entries[topic].next.items()
    }
    steps = lags if max_rows is None else fair_shares(lags, max_rows)
    # a topic that is left out now must not keep the `from` of its last batch
    position = {topic: dataclasses.replace(entry, starts={}) for topic, entry in start.items()}
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


def replaced_topics(expected: Position, logs: Mapping[str, TopicLog]) -> dict[str, TopicReplacedError]:
    """The topics of `expected` that were replaced or deleted, with the reason."""
    found = {}
    for topic, entry in expected.items():
        if topic not in logs:
            found[topic] = TopicReplacedError(f"topic {topic} is gone: it was deleted, or a rule moved it")
            continue
        try:
            _behind(topic, entry, logs[topic], accept_loss=True)
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
        begins = _behind(topic, before, log, accept_loss)
    except TopicReplacedError:
        if accept_replaced:
            return anew
        raise
    starts = {each: begin for each, begin in begins.items() if moved or before.next.get(each) != begin}
    return dataclasses.replace(
        before, topic_id=topic_id, next=begins, starts=starts, last={**before.last, **log.last}, at=log.at or before.at
    )


def _behind(topic: str, before: TopicPosition, log: TopicLog, accept_loss: bool) -> dict[int, int]:
    """The offsets at which reading continues in a known topic."""
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
