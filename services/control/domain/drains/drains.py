"""A drain of a cluster: a batch of moves of topics, with its state, its next step and its end.

The state follows from events alone. A topic waits, moves, and has moved when its move has a certificate; else it is
left, with the reason. The event of a move and the drain's own event about it are in one transaction, so a control that
takes over begins no move twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mesh import durations
from mesh.routing import RoutingTable
from mesh.rpc import drains, events, topic_moves
from services.control.domain.errors import InvalidField, NotAllowed
from services.control.domain.open_and_ended import OpenAndEnded
from services.control.domain.topic_moves.moves import (
    COPYING,
    DONE,
    LARGEST_BUDGET_MS,
    OUT_OF_BUDGET,
    USUAL_BUDGET_MS,
    WORDS,
    TopicMoves,
)

DRAINS = "drains"
"""The collection, in resource names and streams."""
MOST_OPEN = 5
KEPT = 20
"""Ended drains that control keeps in memory; the log has all."""
MOST_TOPICS = 1_000
"""All topics of a drain are in its first event."""
USUAL_AT_ONCE, MOST_AT_ONCE = 2, 10
USUAL_CUTS, MOST_CUTS = 3, 100
MOST_UNCERTIFIED = 20
"""Topics that have switched and wait for their certificates: no further move begins then."""
MOST_NAMED = 1_000
"""Topics, groups and transactional ids that the end of a drain names, of each kind."""
MINUTES_OF_A_DAY = 24 * 60

RUNNING, PAUSED = drains.DRAIN_STATE_RUNNING, drains.DRAIN_STATE_PAUSED
CANCELLING = drains.DRAIN_STATE_CANCELLING
ENDED, CANCELLED = drains.DRAIN_STATE_DONE, drains.DRAIN_STATE_CANCELLED
WAITING, MOVING = drains.DRAIN_TOPIC_STATE_WAITING, drains.DRAIN_TOPIC_STATE_MOVING
MOVED, LEFT = drains.DRAIN_TOPIC_STATE_MOVED, drains.DRAIN_TOPIC_STATE_LEFT
STATES = {RUNNING: "running", PAUSED: "paused", CANCELLING: "cancelling", ENDED: "done", CANCELLED: "cancelled"}

Step = events.DrainMoveEnded | events.DrainTopicLeft
"""The end of a move that was under way."""


@dataclass(frozen=True, slots=True)
class Drains(OpenAndEnded[drains.Drain]):
    """All known drains."""

    kind = "drain"


def fold_drains(known: Drains, event: events.Event) -> Drains:
    """The drains after `event`; the very same value when the event is about something else."""
    match event.WhichOneof("payload"):
        case "drain_started":
            drain = event.drain_started.drain
            return replace(known, open={**known.open, drain.name: drain})
        case "drain_move_begun":
            begun = event.drain_move_begun
            return _with_topic(known, begun.name, begun.topic, state=MOVING, move=begun.move)
        case "drain_move_ended":
            end = event.drain_move_ended
            return _with_topic(
                known, end.name, end.topic, state=MOVED, pause=end.pause.ToTimedelta(), records=end.records,
                confirmed=end.confirmed, problem=end.problem,
            )  # fmt: skip
        case "drain_topic_left":
            left = event.drain_topic_left
            return _with_topic(known, left.name, left.topic, state=LEFT, problem=left.problem)
        case "drain_paused":
            return _with(known, event.drain_paused.name, state=PAUSED, problem=event.drain_paused.problem)
        case "drain_resumed":
            return _with(known, event.drain_resumed.name, state=RUNNING, problem="")
        case "drain_cancelled":
            return _with(known, event.drain_cancelled.name, state=CANCELLING, problem="")
        case "drain_ended":
            end_of = event.drain_ended
            if end_of.name not in known.open:
                return known
            drain = _copied(known.open[end_of.name])
            drain.state = end_of.state
            drain.remainder.CopyFrom(end_of.remainder)
            drain.end_time.CopyFrom(event.time)
            kept = {**known.ended, end_of.name: drain}
            while len(kept) > KEPT:
                del kept[next(iter(kept))]
            return Drains({name: each for name, each in known.open.items() if name != end_of.name}, kept)
        case _:
            return known


def completed(spec: drains.DrainSpec, clusters: Iterable[str]) -> drains.DrainSpec:
    """The order with its defaults; InvalidField if a field is wrong."""
    known = sorted(clusters)
    for name in ("source_cluster", "target_cluster"):
        value = getattr(spec, name)
        if value not in known:
            text = f"cluster {value!r} is not registered (known: {', '.join(known) or 'none'})"
            raise InvalidField(f"spec.{name}", text)
    if spec.source_cluster == spec.target_cluster:
        raise InvalidField("spec.target_cluster", f"{spec.target_cluster!r} is the cluster to drain; name another one")
    whole = drains.DrainSpec()
    whole.CopyFrom(spec)
    budget_ms = durations.whole_ms(spec.hold_budget)
    if not 0 <= budget_ms <= LARGEST_BUDGET_MS:
        raise InvalidField("spec.hold_budget", OUT_OF_BUDGET.format(budget_ms))
    whole.hold_budget.CopyFrom(durations.of_ms(budget_ms or USUAL_BUDGET_MS))
    for name, usual, most in (("at_once", USUAL_AT_ONCE, MOST_AT_ONCE), ("cuts_at_most", USUAL_CUTS, MOST_CUTS)):
        if not 0 <= getattr(spec, name) <= most:
            raise InvalidField(f"spec.{name}", f"{getattr(spec, name)} is not from 0 to {most}; 0 means {usual}")
        setattr(whole, name, getattr(spec, name) or usual)
    if spec.bytes_per_second < 0 or 0 < spec.bytes_per_second < whole.at_once:
        text = f"{spec.bytes_per_second} is not 0, for no bound, and gives {whole.at_once} copies less than a byte each"
        raise InvalidField("spec.bytes_per_second", text)
    if spec.HasField("window"):
        window = spec.window
        if not (0 <= window.from_minute < MINUTES_OF_A_DAY and 0 <= window.to_minute < MINUTES_OF_A_DAY):
            text = f"minutes {window.from_minute} and {window.to_minute} are not both from 0 to {MINUTES_OF_A_DAY - 1}"
            raise InvalidField("spec.window", text)
        if window.from_minute == window.to_minute:
            text = "begins and ends at the same minute; leave the window out to mean the whole day"
            raise InvalidField("spec.window", text)
    return whole


def started(
    known: Drains,
    name: str,
    spec: drains.DrainSpec,
    topics: Sequence[drains.DrainTopic],
    notes: Sequence[str],
    actor: str,
    reason: str,
    now: datetime,
) -> events.DrainStarted:
    """The event of a drain that can begin."""
    if len(known.open) >= MOST_OPEN:
        text = f"{len(known.open)} drains are open, and no more are possible; wait until some end, or cancel them"
        raise NotAllowed("TOO_MANY_DRAINS", DRAINS, text)
    for other in known.open.values():
        if other.spec.source_cluster in (spec.source_cluster, spec.target_cluster):
            text = f"{other.name} drains {other.spec.source_cluster!r} just now; wait for its end, or cancel it"
            raise NotAllowed("CLUSTER_IS_DRAINING", f"clusters/{other.spec.source_cluster}", text)
    if not any(each.state == WAITING for each in topics):
        text = (
            f"no topic of {spec.source_cluster!r} can move to {spec.target_cluster!r}: ask for the plan alone to see "
            "why each of them stays"
        )
        raise NotAllowed("NOTHING_TO_DRAIN", f"clusters/{spec.source_cluster}", text)
    drain = drains.Drain(name=name, spec=spec, state=RUNNING, topics=topics, notes=notes, actor=actor, reason=reason)
    drain.create_time.FromDatetime(now)
    return events.DrainStarted(drain=drain)


def paused(known: Drains, name: str, problem: str = "") -> events.DrainPaused | None:
    """None when the drain is paused already."""
    drain = _still_open(known, name, "paused", RUNNING, PAUSED)
    return None if drain.state == PAUSED else events.DrainPaused(name=name, problem=problem)


def resumed(known: Drains, name: str) -> events.DrainResumed | None:
    """None when the drain runs already."""
    drain = _still_open(known, name, "resumed", RUNNING, PAUSED)
    return None if drain.state == RUNNING else events.DrainResumed(name=name)


def cancelled(known: Drains, name: str) -> events.DrainCancelled | None:
    """None when the drain was cancelled already, and waits for the moves that are under way."""
    drain = _still_open(known, name, "cancelled", RUNNING, PAUSED, CANCELLING)
    return None if drain.state == CANCELLING else events.DrainCancelled(name=name)


def is_within(window: drains.DrainWindow, now: datetime) -> bool:
    """Whether a moment is in this part of the day."""
    at = now.astimezone(UTC)
    minute = at.hour * 60 + at.minute
    if window.from_minute < window.to_minute:
        return window.from_minute <= minute < window.to_minute
    return minute >= window.from_minute or minute < window.to_minute


def begins_next(
    drain: drains.Drain, moves: TopicMoves, now: datetime, resting: Collection[str] = ()
) -> list[drains.DrainTopic]:
    """The topics whose moves are to begin now; `resting`: topics whose moves could not begin a moment ago."""
    if drain.state != RUNNING or (drain.spec.HasField("window") and not is_within(drain.spec.window, now)):
        return []
    moving = [each for each in drain.topics if each.state == MOVING]
    under_way = sum(each.move in moves.open for each in moving)
    free = min(drain.spec.at_once - under_way, drain.spec.at_once + MOST_UNCERTIFIED - len(moving))
    return [each for each in drain.topics if each.state == WAITING and each.topic not in resting][: max(0, free)]


def move_of(spec: drains.DrainSpec, topic: str) -> topic_moves.TopicMoveSpec:
    """The order for the move of one topic."""
    return topic_moves.TopicMoveSpec(
        kind=topic_moves.TOPIC_MOVE_KIND_COPY,
        topic=topic,
        target_cluster=spec.target_cluster,
        bytes_per_second=spec.bytes_per_second // spec.at_once,
        hold_budget=spec.hold_budget,
        without_members=spec.without_members,
    )


def strayed(spec: drains.DrainSpec, topic: str, table: RoutingTable) -> str:
    """Why a topic is no longer one of the drain: somebody has changed the rules since the plan. Empty if it is one."""
    route = table.route(topic)
    if route is None:
        return "no rule leads it to a cluster any more"
    return "" if route.cluster == spec.source_cluster else f"the rules lead it to {route.cluster!r} meanwhile"


def to_roll_back(drain: drains.Drain, moves: TopicMoves) -> list[topic_moves.MoveWithRecords]:
    """The moves whose cuts missed the bound on pauses too often: their topics stay, and the drain goes on."""
    return [
        move
        for each in drain.topics
        if each.state == MOVING
        and (move := moves.open.get(each.move)) is not None
        and move.state == COPYING
        and move.cuts_given_up >= drain.spec.cuts_at_most
    ]


def rolled_back(move: topic_moves.MoveWithRecords) -> str:
    """Why a move was rolled back."""
    cuts = f"{move.cuts_given_up} cuts were given up" if move.cuts_given_up > 1 else "the cut was given up"
    return f"{cuts}, so the move was rolled back, and the topic is where it was; the last time: {move.problem}"


def step_of(drain: drains.Drain, topic: drains.DrainTopic, moves: TopicMoves) -> Step | None:
    """The end of the move of a topic; None while the move is open."""
    move = moves.ended.get(topic.move)
    if move is None:
        if topic.move in moves.open:
            return None
        text = f"{topic.move} is so old that only the log has it; see its end with `meshctl history {topic.move}`"
        return events.DrainTopicLeft(name=drain.name, topic=topic.topic, problem=text)
    if move.state != DONE:
        text = ": ".join(filter(None, [f"{move.name} is {WORDS[move.state]}", move.problem]))
        return events.DrainTopicLeft(name=drain.name, topic=topic.topic, problem=text)
    if not move.HasField("certificate"):
        return None if move.cuts else _ended(drain, move, "the move has no cuts in the log, so it has no certificate")
    return _ended(drain, move, "; ".join(move.certificate.differences))


def distrusts(step: Step) -> str:
    """Why no further topic should move before an operator has looked; empty if there is no reason."""
    if isinstance(step, events.DrainMoveEnded) and not step.confirmed:
        return f"the certificate of topic {step.topic!r} is not confirmed: {step.problem}"
    return ""


def outcome(drain: drains.Drain) -> drains.DrainState.ValueType | None:
    """The state in which the drain ends now; None while something is to be done."""
    states = {each.state for each in drain.topics}
    if MOVING in states:
        return None
    if drain.state == CANCELLING:
        return CANCELLED
    return None if WAITING in states else ENDED


def shown(
    drain: drains.Drain, moves: TopicMoves, behind: Mapping[str, int], resting: Mapping[str, str], now: datetime
) -> drains.Drain:
    """The drain with the lag and the problems of its copies, and with its counts.

    `behind`: move -> records; `resting`: topic -> why its move could not begin yet.
    """
    after = counted(drain)
    window = drain.spec.window
    if drain.state == RUNNING and drain.spec.HasField("window") and not is_within(window, now):
        hour, minute = divmod(window.from_minute, 60)
        after.notes.append(f"the window is closed: moves begin again at {hour:02d}:{minute:02d} UTC")
    for each in after.topics:
        if each.state == MOVING and each.move in behind:
            each.behind = behind[each.move]
        if each.state == MOVING and each.move in moves.open:
            each.problem = moves.open[each.move].problem
        if each.state == WAITING:
            each.problem = resting.get(each.topic, "")
    return after


def counted(drain: drains.Drain) -> drains.Drain:
    """The drain with its counts."""
    after, of = _copied(drain), Counter(each.state for each in drain.topics)
    counts = drains.DrainCounts(waiting=of[WAITING], moving=of[MOVING], moved=of[MOVED], left=of[LEFT])
    after.counts.CopyFrom(counts)
    return after


def _ended(drain: drains.Drain, move: topic_moves.MoveWithRecords, problem: str) -> events.DrainMoveEnded:
    bound = durations.whole_ms(drain.spec.hold_budget)
    waited = durations.whole_ms(move.pause)
    if not problem and waited > bound:
        problem = f"producers waited {waited} ms, and the bound is {bound} ms: gateways took long to switch"
    return events.DrainMoveEnded(
        name=drain.name,
        topic=move.spec.topic,
        pause=move.pause,
        records=sum(each.source.records for each in move.certificate.partitions),
        confirmed=move.certificate.confirmed,
        problem=problem,
    )


def _still_open(known: Drains, name: str, how: str, *states: drains.DrainState.ValueType) -> drains.Drain:
    drain = known.get(name)
    if drain.state not in states:
        text = f"drain {name!r} is {STATES[drain.state]}: it can't be {how}"
        raise NotAllowed("TOO_LATE_FOR_DRAIN", name, text)
    return drain


def _with(known: Drains, name: str, **fields: object) -> Drains:
    before = known.open.get(name)
    if before is None:
        return known
    after = _copied(before)
    for each, value in fields.items():
        setattr(after, each, value)
    return replace(known, open={**known.open, name: after})


def _with_topic(known: Drains, name: str, topic: str, **fields: object) -> Drains:
    before = known.open.get(name)
    if before is None:
        return known
    after = _copied(before)
    for each in after.topics:
        if each.topic == topic:
            for which, value in fields.items():
                setattr(each, which, value)
    return replace(known, open={**known.open, name: after})


def _copied(before: drains.Drain) -> drains.Drain:
    after = drains.Drain()
    after.CopyFrom(before)
    return after
