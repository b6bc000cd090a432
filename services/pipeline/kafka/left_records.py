"""Records that a topic left at a former cluster, because a rule moved it before they were read. No I/O.

1. The entry of a topic that has moved keeps a `Stay` for each former cluster (positions.py). A stay has a name like the
   topics of spans: {node of the cluster}/{topic}.
2. The first description of the topic by its former cluster fixes `until`, the ends of its logs. Through the mesh nobody
   writes there after the move, so the topic left the offsets from `next` up to `until`. A later description never
   raises `until`: what somebody writes there past the mesh, such as a mirror of the topic, is not the topic's.
3. The offsets are read in the generation of that cluster. `until` includes the records of open transactions. So a stay
   is not done before these transactions have ended.
4. A topic may be deleted or created again at the former cluster, and retention goes on there. If `next` is not at
   `until` by then, the rest is lost. Without a description there may be a rest, so it counts as lost too. A loss is an
   error until an operator accepts it; then the stay is done.
5. With the first description, the position keeps the topic id of the cluster itself. The id shows whether the topic was
   created again. Before, only the times of records and the ends of the logs show this.
6. If the topic comes back before all is read, it simply goes on there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from services.pipeline.kafka.lags import Lag
from services.pipeline.kafka.positions import (
    Position,
    RecordsLostError,
    Stay,
    TopicLog,
    TopicPosition,
    TopicReplacedError,
    fair_shares,
    offsets_in,
    spans,
)

NO_CLUSTER = "a cluster that was removed"
MOST_PARTITIONS = 10
"""The most partitions that a message names. The message gives only the number of the others."""


@dataclass(frozen=True, slots=True)
class LeftLog:
    """A topic as a former cluster describes it."""

    log: TopicLog
    ends: Mapping[int, int]
    """The ends of the logs, behind the records of open transactions too."""
    is_another: bool = False
    """Whether the times of the records show that the topic was created again."""


Look = LeftLog | None
"""The description of a topic by its former cluster. None: the cluster does not have the topic, or was removed."""


def stays_of(position: Position, topics: Collection[str]) -> dict[str, Stay]:
    """The stays of these topics that are not done, by name."""
    return {
        f"{cluster}/{topic}": stay
        for topic in topics
        if topic in position
        for cluster, stay in position[topic].former.items()
        if not stay.is_done
    }


def topic_of(name: str) -> str:
    """The topic of a stay with this name."""
    return name.rpartition("/")[2]


def entry_of(position: Position, name: str) -> TopicPosition:
    """The entry of a topic of spans; a stay has the form of an entry."""
    if name in position:
        return position[name]
    cluster, _, topic = name.rpartition("/")
    return _as_entry(position[topic].former[cluster])


def loss_of(name: str, stay: Stay, look: Look, place: str) -> RecordsLostError | None:
    """The loss at a former cluster. `place`: {cluster}/{topic's name there}, or empty if the cluster is not known."""
    if look is not None and not _is_another(stay, look):
        try:
            offsets_in(place, _as_entry(stay), look.log, accept_loss=False)
        except RecordsLostError as error:
            return error
        return None
    topic, cluster = topic_of(name), place.rpartition("/")[0]
    why = f"was {'deleted' if look is None else 'created again'} at {cluster}" if cluster else f"was at {NO_CLUSTER}"
    return RecordsLostError(
        f"topic {topic} {why} before it was read to its end there: {_rest(stay)} are lost; go on without them with "
        "--accept-loss"
    )


def given_up_at(name: str, stay: Stay, place: str) -> str:
    """A sentence that names what the acceptance of a loss gives up."""
    return f"goes on without what was left at {place.rpartition('/')[0] or NO_CLUSTER}: {_rest(stay)}"


def _rest(stay: Stay) -> str:
    until = stay.until or {}
    open_ = [partition for partition, at in sorted(stay.next.items()) if at < until.get(partition, at + 1)]
    named = ", ".join(
        f"{stay.next[each]} to {until[each] - 1} of partition {each}"
        if each in until
        else f"{stay.next[each]} and later of partition {each}"
        for each in open_[:MOST_PARTITIONS]
    )
    more = f" and of {len(open_) - MOST_PARTITIONS} partitions more" if len(open_) > MOST_PARTITIONS else ""
    return f"offsets {named}{more}" if named else "the rest"


def lag_of_left(stays: Mapping[str, Stay], looks: Mapping[str, Look]) -> Lag:
    """The lag of these stays, as far as it is known."""
    behind, spare = 0, []
    for name, stay in stays.items():
        look = looks.get(name)
        until = stay.until if stay.until is not None else look.ends if look is not None else {}
        for partition, end in until.items():
            at = stay.next.get(partition, 0)
            behind += max(end - at, 0)
            if at < end and look is not None and partition in look.log.partitions:
                spare.append(at - look.log.partitions[partition].start)
    return Lag(behind, min(spare, default=None))


def advance_left(
    start: Position,
    end: Position,
    looks: Mapping[str, Look],
    places: Mapping[str, str],
    *,
    accept_loss_of: Collection[str] = (),
    max_rows: int | None = None,
) -> Position:
    """The end of the batch after `start`, with the next part of what topics left; `end` has the rest of the batch.

    A stay with a loss stands still, unless the loss of its topic is accepted. The batch has at most `max_rows` offsets.
    Returns `end` itself if nothing changes.
    """
    begun: dict[str, Stay] = {}
    known = stays_of(start, start.keys())
    for name in looks.keys() & known.keys():
        cluster, _, topic = name.rpartition("/")
        if cluster not in end[topic].former:  # the topic is back
            continue
        stay = _begun(known[name], looks[name], places[name], is_accepted=topic in accept_loss_of)
        if stay is not None:
            begun[name] = stay
    stable = {
        (name, partition): min(each.end, (stay.until or {}).get(partition, 0))
        for name, stay in begun.items()
        if (look := looks[name]) is not None
        for partition, each in look.log.partitions.items()
    }
    lags = {
        (name, partition): max(reachable - begun[name].next.get(partition, 0), 0)
        for (name, partition), reachable in stable.items()
    }
    taken = 0 if end is start else sum(each.end - each.start for each in spans(start, end))
    steps = lags if max_rows is None else fair_shares(lags, max(max_rows - taken, 0))
    found = {
        name: dataclasses.replace(stay, next={each: at + steps.get((name, each), 0) for each, at in stay.next.items()})
        for name, stay in begun.items()
    }
    if all(dataclasses.replace(stay, starts=known[name].starts) == known[name] for name, stay in found.items()):
        return end
    position = {topic: entry.without_starts() for topic, entry in end.items()} if end is start else dict(end)
    for name, stay in found.items():
        cluster, _, topic = name.rpartition("/")
        entry = position[topic]
        position[topic] = dataclasses.replace(entry, former={**entry.former, cluster: stay})
    return position


def _begun(stay: Stay, look: Look, place: str, *, is_accepted: bool) -> Stay | None:
    """The stay at the start of its next batch; None if a loss holds it up."""
    if look is None or _is_another(stay, look):
        return dataclasses.replace(stay, starts={}, until=stay.next, place=place) if is_accepted else None
    try:
        begins = offsets_in(place, _as_entry(stay), look.log, is_accepted)
    except RecordsLostError:
        return None
    until = look.ends if stay.until is None else stay.until
    begins = {each: max(min(at, until.get(each, at)), stay.next.get(each, 0)) for each, at in begins.items()}
    starts = {each: at for each, at in begins.items() if stay.next.get(each) != at}
    topic_id = look.log.topic_id or stay.topic_id
    return dataclasses.replace(stay, next=begins, starts=starts, until=until, topic_id=topic_id, place=place)


def _is_another(stay: Stay, look: LeftLog) -> bool:
    """Whether the topic was created again since it left."""
    try:
        offsets_in("", _as_entry(stay), look.log, accept_loss=True)
    except TopicReplacedError:
        return True
    return look.is_another


def _as_entry(stay: Stay) -> TopicPosition:
    return TopicPosition(stay.topic_id, stay.next, stay.starts, stay.last, stay.generation)
