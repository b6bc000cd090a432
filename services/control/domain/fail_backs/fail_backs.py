"""A fail-back of a cluster: its topics with their steps, from events alone.

1. A topic waits, is reconciled (its strays are written to their place), is made again where it has to be, and is ready.
2. Each comparison covers a part of a topic's log, and the event before it says which. Both logs only grow. So the
   same part has the same strays for each control that goes on with it.
3. The topics that are ready move back by one drain. The end of the drain is the end of the fail-back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from mesh.routing import RoutingTable
from mesh.rpc import drains, events, fail_backs, standbys
from services.control.domain.drains.drains import CANCELLED as DRAIN_CANCELLED
from services.control.domain.drains.drains import ENDED as DRAIN_ENDED
from services.control.domain.drains.drains import LEFT as DRAIN_LEFT
from services.control.domain.drains.drains import MOVED as DRAIN_MOVED
from services.control.domain.drains.drains import MOVING as DRAIN_MOVING
from services.control.domain.drains.drains import Drains
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.standbys.standbys import FAILED_OVER, STANDBYS, STATES, Standbys, named
from services.control.domain.topic_moves.moves import CUTTING, TopicMoves
from services.control.domain.topic_moves.moves import DONE as MOVE_DONE

FAIL_BACKS = "failbacks"
"""The collection, in resource names and streams."""
MOST_OPEN = 5
MOST_BYTES_OF_TOPICS = 200_000
"""Bytes of the topics of one event."""
STRAYS_SUFFIX = ".strays"

RECONCILING, MOVING = fail_backs.FAIL_BACK_STATE_RECONCILING, fail_backs.FAIL_BACK_STATE_MOVING
ENDED, CANCELLED = fail_backs.FAIL_BACK_STATE_DONE, fail_backs.FAIL_BACK_STATE_CANCELLED
WORDS = {RECONCILING: "reconciling", MOVING: "moving", ENDED: "done", CANCELLED: "cancelled"}
WAITING, TOPIC_RECONCILING = fail_backs.FAIL_BACK_TOPIC_STATE_WAITING, fail_backs.FAIL_BACK_TOPIC_STATE_RECONCILING
RECREATING, READY = fail_backs.FAIL_BACK_TOPIC_STATE_RECREATING, fail_backs.FAIL_BACK_TOPIC_STATE_READY
MOVED, LEFT = fail_backs.FAIL_BACK_TOPIC_STATE_MOVED, fail_backs.FAIL_BACK_TOPIC_STATE_LEFT
COPY_ON, RECREATE = fail_backs.FAIL_BACK_WAY_COPY_ON, fail_backs.FAIL_BACK_WAY_RECREATE
TO_TOPIC, APPENDED = fail_backs.STRAY_POLICY_TOPIC, fail_backs.STRAY_POLICY_APPEND

FailBacks = Mapping[str, fail_backs.FailBack]
"""The last fail-back of each cluster, by name. Nobody changes the messages in it."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of one partition: on the cluster that came back, where clients are, and of the place for strays."""

    cluster: int
    clients: int
    strays: int


def fold_fail_backs(known: FailBacks, event: events.Event) -> FailBacks:
    """The fail-backs after `event`; the very same value when the event is about something else."""
    match event.WhichOneof("payload"):
        case "fail_back_started":
            return {**known, event.fail_back_started.fail_back.name: event.fail_back_started.fail_back}
        case "fail_back_topics_set":
            after = _copied(known[event.fail_back_topics_set.name])
            topics = {each.topic: each for each in (*after.topics, *event.fail_back_topics_set.topics)}
            del after.topics[:]
            after.topics.extend(topics[topic] for topic in sorted(topics))
            return {**known, after.name: after}
        case "fail_back_moving":
            after = _copied(known[event.fail_back_moving.name])
            after.state, after.drain = MOVING, event.fail_back_moving.drain
            return {**known, after.name: after}
        case "fail_back_ended":
            after = _copied(known[event.fail_back_ended.name])
            after.state = event.fail_back_ended.state
            after.end_time.CopyFrom(event.time)
            return {**known, after.name: after}
        case _:
            return known


def get(known: FailBacks, name: str) -> fail_backs.FailBack:
    """The last fail-back of a cluster; Unknown if there was none."""
    if name not in known:
        raise Unknown(name, f"no fail-back {name!r} is known (known: {', '.join(sorted(known)) or 'none'})")
    return known[name]


def is_open(fail_back: fail_backs.FailBack) -> bool:
    """Whether it has not ended."""
    return fail_back.state in (RECONCILING, MOVING)


def standby_of(fail_back: fail_backs.FailBack) -> str:
    """The name of the standby that failed over."""
    return f"{STANDBYS}/{fail_back.spec.cluster}"


def started(
    known: FailBacks,
    of: Standbys,
    spec: fail_backs.FailBackSpec,
    table: RoutingTable,
    revision: int,
    actor: str,
    reason: str,
    now: datetime,
) -> fail_backs.FailBack:
    """The fail-back that can begin, with its topics. `of`: the standbys; `revision`: of the rules in force."""
    if spec.cluster not in table.clusters:
        names = ", ".join(sorted(table.clusters)) or "none"
        raise InvalidField("spec.cluster", f"cluster {spec.cluster!r} is not registered (known: {names})")
    standby = named(of, f"{STANDBYS}/{spec.cluster}")
    name = f"{FAIL_BACKS}/{spec.cluster}"
    if standby.state != FAILED_OVER:
        text = f"{standby.name} is {STATES[standby.state]}: only a cluster that has failed over can fail back"
        raise NotAllowed("NOT_FAILED_OVER", standby.name, text)
    earlier = known.get(name)
    if earlier is not None and is_open(earlier):
        raise NotAllowed("FAIL_BACK_IS_OPEN", name, f"{name} is {WORDS[earlier.state]}; wait for its end, or cancel it")
    if sum(map(is_open, known.values())) >= MOST_OPEN:
        raise NotAllowed("TOO_MANY_FAIL_BACKS", FAIL_BACKS, f"{MOST_OPEN} fail-backs are open; wait until one ends")
    for field in ("source_cluster", "target_cluster", "topics"):
        if getattr(spec.moves, field):
            raise InvalidField(f"spec.moves.{field}", "is set by control; leave it out")
    if earlier is not None and earlier.fail_over_time != standby.fail_over_time:
        earlier = None
    topics = [each for each in _topics(standby, earlier) if not _is_back(each, standby, table)]
    if not topics:
        raise NotAllowed("NOTHING_TO_FAIL_BACK", name, f"{standby.name} has no topic that is not back yet")
    fail_back = fail_backs.FailBack(
        name=name, spec=spec, clients_cluster=standby.spec.target_cluster, state=RECONCILING, topics=topics,
        revision=revision, fail_over_time=standby.fail_over_time, actor=actor, reason=reason,
    )  # fmt: skip
    fail_back.spec.strays = spec.strays or TO_TOPIC
    fail_back.create_time.FromDatetime(now)
    return fail_back


def beginning(fail_back: fail_backs.FailBack) -> list[events.FailBackStarted | events.FailBackTopicsSet]:
    """The first events of a fail-back."""
    bare = _copied(fail_back)
    del bare.topics[:]
    return [events.FailBackStarted(fail_back=bare), *in_events(fail_back.name, fail_back.topics)]


def in_events(name: str, topics: Iterable[fail_backs.FailBackTopic]) -> Iterator[events.FailBackTopicsSet]:
    """The topics in as many events as they need."""
    some: list[fail_backs.FailBackTopic] = []
    size = 0
    for each in topics:
        if some and size + each.ByteSize() > MOST_BYTES_OF_TOPICS:
            yield events.FailBackTopicsSet(name=name, topics=some)
            some, size = [], 0
        some.append(each)
        size += each.ByteSize()
    if some:
        yield events.FailBackTopicsSet(name=name, topics=some)


def to_compare(
    topic: fail_backs.FailBackTopic, ends: Mapping[int, Ends], strays_topic: str
) -> fail_backs.FailBackTopic:
    """The topic as it is when the next comparison begins. `ends`: by partition."""
    after = changed(topic, state=TOPIC_RECONCILING, problem="")
    has_more = False
    for each in after.partitions:
        now = ends[each.partition]
        each.start = max(each.copied_end, each.end)
        each.end, each.clients_end, each.strays_start = now.cluster, now.clients, now.strays
        has_more |= each.end > each.start
    after.strays_topic = strays_topic if has_more else topic.strays_topic
    return after


def with_found(topic: fail_backs.FailBackTopic, found: Mapping[int, tuple[int, int]]) -> fail_backs.FailBackTopic:
    """The topic with what a comparison has found. `found`: partition -> strays, and records that were sent again."""
    after = changed(topic)
    for each in after.partitions:
        strays, resent = found[each.partition]
        each.strays += strays
        each.resent += resent
    return after


def closed(topic: fail_backs.FailBackTopic, settings: Mapping[str, str]) -> fail_backs.FailBackTopic:
    """The topic when its strays are in their place. `settings`: its own, if it has to be made again."""
    state = RECREATING if topic.way == RECREATE else READY
    after = changed(topic, state=state, problem="")
    for each in after.partitions:
        each.start = each.end = each.clients_end = each.strays_start = 0
    after.settings.update(settings)
    return after


def left(topic: fail_backs.FailBackTopic, why: str) -> fail_backs.FailBackTopic:
    """The topic stays where it is."""
    return changed(topic, state=LEFT, problem=why)


def changed(topic: fail_backs.FailBackTopic, **fields: object) -> fail_backs.FailBackTopic:
    """The topic with other values."""
    after = fail_backs.FailBackTopic()
    after.CopyFrom(topic)
    for name, value in fields.items():
        setattr(after, name, value)
    return after


def drain_of(fail_back: fail_backs.FailBack) -> drains.DrainSpec:
    """The order for the drain that leads the topics back."""
    spec = drains.DrainSpec()
    spec.CopyFrom(fail_back.spec.moves)
    spec.source_cluster, spec.target_cluster = fail_back.clients_cluster, fail_back.spec.cluster
    return spec


def with_drain(fail_back: fail_backs.FailBack, known: Drains) -> list[fail_backs.FailBackTopic]:
    """The topics that were ready, as their drain says."""
    drain = known.open.get(fail_back.drain) or known.ended.get(fail_back.drain)
    by_name = {} if drain is None else {each.topic: each for each in drain.topics}
    found = []
    for topic in fail_back.topics:
        moving = by_name.get(topic.topic)
        if topic.state != READY:
            continue
        if moving is None:
            found.append(left(topic, f"{fail_back.drain} does not have it"))
        elif moving.state == DRAIN_MOVED:
            found.append(changed(topic, state=MOVED, problem=moving.problem))
        elif moving.state == DRAIN_LEFT or drain is None or drain.state in (DRAIN_ENDED, DRAIN_CANCELLED):
            found.append(left(topic, moving.problem or f"{fail_back.drain} has ended before its move"))
        else:
            found.append(changed(topic, problem=moving.problem))
    return found


def end_of(fail_back: fail_backs.FailBack, known: Drains) -> fail_backs.FailBackState.ValueType | None:
    """The state in which the fail-back ends with its drain; None while the drain is open."""
    if fail_back.drain in known.open:
        return None
    drain = known.ended.get(fail_back.drain)
    return CANCELLED if drain is not None and drain.state == DRAIN_CANCELLED else ENDED


def refuse_cut(fail_back: fail_backs.FailBack, known: Drains, moves: TopicMoves) -> list[str]:
    """The open moves that a cancellation has to end. Refused if a topic is cut, or back."""
    if not is_open(fail_back):
        text = f"{fail_back.name} is {WORDS[fail_back.state]}: it can't be cancelled"
        raise NotAllowed("TOO_LATE_FOR_FAIL_BACK", fail_back.name, text)
    drain = known.open.get(fail_back.drain)
    under_way = [] if drain is None else [each.move for each in drain.topics if each.state == DRAIN_MOVING]
    cut = [
        move
        for name in under_way
        if (move := moves.open.get(name) or moves.ended.get(name)) is not None and move.state in (CUTTING, MOVE_DONE)
    ]
    if cut or (fail_back.state == MOVING and any(each.state == MOVED for each in with_drain(fail_back, known))):
        text = f"a topic of {fail_back.name} is back already; `meshctl cluster drain pause {fail_back.drain}` stops it"
        raise NotAllowed("TOO_LATE_FOR_FAIL_BACK", fail_back.name, text)
    return [name for name in under_way if name in moves.open]


def _topics(standby: standbys.Standby, earlier: fail_backs.FailBack | None) -> Iterator[fail_backs.FailBackTopic]:
    known = {} if earlier is None else {each.topic: each for each in earlier.topics}
    for each in standby.topics:
        if each.left:
            continue
        before = known.get(each.topic)
        if before is not None and before.state == RECREATING:
            yield before
        elif before is not None and any(partition.end for partition in before.partitions):
            yield changed(before, state=TOPIC_RECONCILING, problem="")  # the comparison goes on as it was begun
        else:
            yield _waiting(each, before)


def _waiting(topic: standbys.StandbyTopic, before: fail_backs.FailBackTopic | None) -> fail_backs.FailBackTopic:
    counted = {} if before is None else {each.partition: each for each in before.partitions}
    none = fail_backs.FailBackPartition()
    return fail_backs.FailBackTopic(
        topic=topic.topic,
        cluster_topic=topic.copy.topic,
        clients_topic=topic.copy.target_topic,
        state=WAITING,
        strays_topic="" if before is None else before.strays_topic,
        partitions=[
            fail_backs.FailBackPartition(
                partition=each.partition,
                copied_end=each.position,
                strays=counted.get(each.partition, none).strays,
                resent=counted.get(each.partition, none).resent,
            )
            for each in topic.partitions
        ],
    )


def _is_back(topic: fail_backs.FailBackTopic, standby: standbys.Standby, table: RoutingTable) -> bool:
    route = table.route(topic.topic)
    return route is not None and route.cluster == standby.spec.source_cluster


def of_state(
    fail_back: fail_backs.FailBack, *states: fail_backs.FailBackTopicState.ValueType
) -> Sequence[fail_backs.FailBackTopic]:
    """Its topics in one of these states."""
    return [each for each in fail_back.topics if each.state in states]


def _copied(before: fail_backs.FailBack) -> fail_backs.FailBack:
    after = fail_backs.FailBack()
    after.CopyFrom(before)
    return after
