"""Where a stream of topics stands, and how far its next batch goes. No I/O, no Spark.

Spark keeps a position in the checkpoint as JSON, one entry for each topic:

    {"apples": {"id": "WfM1...", "next": {"0": 120, "1": 98}, "from": {"1": 0}, "last": {"0": [119, 1790000000000]}}}

1. `next` is the offset that is read next, for every partition that is known.
2. A batch is the span between two positions. A partition that the earlier one does not know begins where the later one
   says in `from`. So a batch that is run again after a crash reads exactly what it read before.
3. A topic that is new to the stream begins at the start of its log. A partition that was *added* to a known topic
   begins at 0: what retention took from it meanwhile was lost to us.
4. What was lost is an error and never skipped in silence: retention that passed `next`, a log that ends before `next`,
   a partition that went away, a topic with another id (created again, or moved to another cluster by a rule: its
   offsets mean other records). The first may be accepted, by order of the operator; `from` then says where reading goes
   on. Who knows its records by what they say (`accept_replaced`) may read such a topic as a new one, from its start.
5. An id that a gateway made of the topic's name tells nothing of that. There, `last` is the record of each partition
   with the latest time: no record before its offset can be of a later time, for as long as the log is the same one.
6. A topic that is no longer asked for keeps its entry, so that it goes on from there when it is asked for again.
7. A topic that is read anew, because another topic took its name, begins its next `generation`. Records of different
   generations of a topic may have the same partition and offset. Generation 0 is not written.
8. One topic with a problem must not stop the others: `problems` names the topics that `advance` would refuse, so that
   the caller can leave them out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

NEW_FOLDER = "read it into a new folder"
Place = tuple[str, int]
"""A topic and one of its partitions."""


class StreamError(Exception):
    """The stream can't go on as it should; the message says where and why, in one line."""


class UnreachableError(StreamError):
    """A cluster, or a store, does not answer, or not as it should; another attempt may do better."""


class RecordsLostError(StreamError):
    """Records that the stream was to read next do not exist any more."""


class TopicReplacedError(StreamError):
    """The topic is not the one that the checkpoint speaks of."""


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """What a partition holds: offsets from `start` up to `end`, which is the last stable offset."""

    start: int
    end: int


class Stamp(NamedTuple):
    """A record's offset and time."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic as the cluster shows it now; an empty id where the cluster does not tell."""

    topic_id: str
    partitions: Mapping[int, PartitionLog]
    last: Mapping[int, Stamp] = field(default_factory=dict)
    """The records with the latest time, where it was asked for."""


@dataclass(frozen=True, slots=True)
class TopicPosition:
    """A topic's entry in a position: see the top of this file."""

    topic_id: str = ""
    next: Mapping[int, int] = field(default_factory=dict)
    starts: Mapping[int, int] = field(default_factory=dict)
    last: Mapping[int, Stamp] = field(default_factory=dict)
    generation: int = 0


Position = Mapping[str, TopicPosition]


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets `start` up to `end`, without it, of one partition."""

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
            {int(partition): Stamp(*stamp) for partition, stamp in entry.get("last", {}).items()},
            entry.get("generation", 0),
        )
        for topic, entry in document.items()
    }


def _by_number(offsets: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


def render(position: Position) -> dict[str, Any]:
    """The JSON form. Spark compares positions as text, so equal ones are rendered alike."""
    return {
        topic: {"id": entry.topic_id, "next": _by_text(entry.next), "from": _by_text(entry.starts)}
        | (
            {"last": {str(partition): list(stamp) for partition, stamp in sorted(entry.last.items())}}
            if entry.last
            else {}
        )
        | ({"generation": entry.generation} if entry.generation else {})
        for topic, entry in sorted(position.items())
    }


def _by_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def spans(start: Position, end: Position) -> Iterator[Span]:
    """What lies between two positions."""
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
    """The end of the batch after `start`: at most `max_rows` offsets on, shared fairly between partitions.

    It is `start` itself when there is nothing to read. Loss is accepted of all topics, or of some. `replaced` names
    topics of which the caller knows that another topic has their name now. Raises RecordsLostError and
    TopicReplacedError.
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
    # a topic that is left out now is not read from where its batch before this one began
    position = {topic: dataclasses.replace(entry, starts={}) for topic, entry in start.items()}
    for topic, entry in entries.items():
        ends = {partition: begin + steps[topic, partition] for partition, begin in entry.next.items()}
        position[topic] = dataclasses.replace(entry, next=ends)
    return start if _stands_still(start, position) else position


def problems(
    start: Position, logs: Mapping[str, TopicLog], *, accept_loss: Collection[str] = (), accept_replaced: bool = False
) -> dict[str, StreamError]:
    """The topics that `advance` would refuse, and why; it would read the others."""
    found: dict[str, StreamError] = {}
    for topic, log in logs.items():
        try:
            _entry(topic, start.get(topic), log, topic in accept_loss, accept_replaced, ())
        except StreamError as error:
            found[topic] = error
    return found


def lost_spans(position: Position, logs: Mapping[str, TopicLog]) -> list[Span]:
    """What retention took of topics before it was read."""
    return [
        Span(topic, partition, position[topic].next.get(partition, 0), each.start)
        for topic, log in logs.items()
        if topic in position
        for partition, each in log.partitions.items()
        if position[topic].next.get(partition, 0) < each.start
    ]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a position is behind the logs."""

    behind: int
    """Offsets that are there and not read."""
    spare: int | None
    """Offsets that retention has still to take before it takes one that is not read, in the partition where they are
    fewest; below 0 where it has taken some. None while nothing waits to be read.
    """


def lag_of(position: Position, logs: Mapping[str, TopicLog]) -> Lag:
    """Topics that nobody has read yet are behind with all that they hold."""
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
    """The topics of `expected` that are not the same ones any more, or that are gone, and why."""
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
    """Nothing to read and nothing to note; what `start` says in `from` is no news."""
    return all(
        topic in start
        and (start[topic].next, start[topic].topic_id, start[topic].generation)
        == (entry.next, entry.topic_id, entry.generation)
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
    """The topic's entry when its next batch begins."""
    from_start = {partition: each.start for partition, each in log.partitions.items()}
    if before is None:
        return TopicPosition(log.topic_id, from_start, from_start, log.last)
    anew = TopicPosition(log.topic_id or before.topic_id, from_start, from_start, log.last, before.generation + 1)
    if topic in replaced:
        return anew
    try:
        begins = _behind(topic, before, log, accept_loss)
    except TopicReplacedError:
        if accept_replaced:
            return anew
        raise
    starts = {partition: begin for partition, begin in begins.items() if before.next.get(partition) != begin}
    topic_id = log.topic_id or before.topic_id
    return TopicPosition(topic_id, begins, starts, {**before.last, **log.last}, before.generation)


def _behind(topic: str, before: TopicPosition, log: TopicLog, accept_loss: bool) -> dict[int, int]:
    """Where reading goes on in a topic that is known."""
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


def later_times(position: Position, topics: Iterable[str]) -> dict[Place, int]:
    """What to ask of the logs to know whether they are still those that `position` speaks of: the first offset of a
    later time than each had then.
    """
    return {
        (topic, partition): stamp.time_ms + 1
        for topic in topics
        for partition, stamp in position.get(topic, TopicPosition()).last.items()
    }


def replaced_by_times(position: Position, found: Mapping[Place, int]) -> dict[str, TopicReplacedError]:
    """The topics whose answers to `later_times` (-1: none) can't be of the same log."""
    replaced = {}
    for (topic, partition), offset in found.items():
        stamp = position[topic].last[partition]
        if 0 <= offset <= stamp.offset:
            replaced[topic] = TopicReplacedError(
                f"{topic}/{partition} has at offset {offset} a record of a later time than it had up to offset "
                f"{stamp.offset} before: it was created again, or a rule moved it to another cluster; {NEW_FOLDER}"
            )
    return replaced


def fair_shares(lags: Mapping[tuple[str, int], int], rows: int) -> dict[tuple[str, int], int]:
    """`rows` over partitions: nobody gets more than it has, and what small ones leave goes to the large ones."""
    shares = {}
    waiting = len(lags)
    for place, lag in sorted(lags.items(), key=lambda item: (item[1], item[0])):
        shares[place] = min(lag, rows // waiting)
        rows -= shares[place]
        waiting -= 1
    return shares
