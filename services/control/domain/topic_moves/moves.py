"""A move of a topic with its records: copying, or waiting without a copy; cutting; then done, cancelled or failed.

The state follows from events alone. If control stops between the switch of the rule and the end of the move, the rule
says how the move ends: `is_switched`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mesh import durations
from mesh.routing import Place, RoutingTable, Subject
from mesh.rpc import events, record_rules, topic_moves
from services.control.domain.errors import InvalidField, NotAllowed, Unknown
from services.control.domain.open_and_ended import newest_first
from services.control.domain.stitches.logs import log_of
from services.control.domain.topic_moves.two_cuts import (
    KINDS,
    NEEDED,
    STITCH,
    STITCH_THEN_COPY,
    after_first_cut,
    before_cut,
    is_settled,
    tail_of,
    whole_copy,
    without_tail,
)

TOPIC_MOVES = "topicmoves"
"""The collection, in resource names and streams."""
MAX_OPEN = 20
KEPT = 100
"""Ended moves that control keeps in memory; the log has all."""
USUAL_BUDGET_MS = 1_000
LARGEST_BUDGET_MS = 10_000
OUT_OF_BUDGET = f"{{}} ms is not from 0 to {LARGEST_BUDGET_MS} ms; 0 means {USUAL_BUDGET_MS} ms"
TAIL_PART = 0.1
"""The part of the budget that the copy may take for its tail: the rest is for a tail that is larger by then, for the
positions of groups, and for the switch.
"""
WATCHED = NEEDED
"""The time after a cut in which control watches the old log."""
MOST_PARTITIONS = 1_000
"""The cut of a move is one event, with all partitions in it."""
COPYING = topic_moves.TOPIC_MOVE_STATE_COPYING
CUTTING = topic_moves.TOPIC_MOVE_STATE_CUTTING
DONE = topic_moves.TOPIC_MOVE_STATE_DONE
CANCELLED = topic_moves.TOPIC_MOVE_STATE_CANCELLED
FAILED = topic_moves.TOPIC_MOVE_STATE_FAILED
WAITING = topic_moves.TOPIC_MOVE_STATE_WAITING
WORDS = {
    COPYING: "copying",
    CUTTING: "cutting",
    DONE: "done",
    CANCELLED: "cancelled",
    FAILED: "failed",
    WAITING: "waiting",
}


@dataclass(frozen=True, slots=True)
class TopicMoves:
    """All known moves by name, oldest first. Nobody changes the messages in it."""

    open: Mapping[str, topic_moves.MoveWithRecords] = field(default_factory=dict)
    ended: Mapping[str, topic_moves.MoveWithRecords] = field(default_factory=dict)

    def get(self, name: str) -> topic_moves.MoveWithRecords:
        known = self.open.get(name) or self.ended.get(name)
        if known is None:
            raise Unknown(name, f"no move {name!r} is known: {', '.join(self.open) or 'none'} are open")
        return known

    @property
    def newest(self) -> list[topic_moves.MoveWithRecords]:
        return sorted([*self.open.values(), *self.ended.values()], key=newest_first)


def fold_topic_moves(known: TopicMoves, event: events.Event) -> TopicMoves:
    """The moves after `event`; the very same value when the event is about something else."""
    match event.WhichOneof("payload"):
        case "topic_move_started":
            move = event.topic_move_started.move
            return replace(known, open={**known.open, move.name: move})
        case "topic_move_cut_begun":
            return _with(known, event.topic_move_cut_begun.name, state=CUTTING)
        case "topic_move_cut_given_up":
            name, problem = event.topic_move_cut_given_up.name, event.topic_move_cut_given_up.problem
            if name not in known.open:
                return known
            before = known.open[name]
            move = _changed(before, state=before_cut(before), problem=problem, cuts_given_up=before.cuts_given_up + 1)
            del move.cuts[:], move.positions[:]
            return replace(known, open={**known.open, name: move})
        case "topic_move_hindered":
            hindered = event.topic_move_hindered
            return _with(known, hindered.name, problem=hindered.problem, hindered=bool(hindered.problem))
        case "topic_move_cut_reached":
            reached = event.topic_move_cut_reached
            if reached.name not in known.open:
                return known
            move = _changed(known.open[reached.name])
            move.cuts.extend(reached.cuts)
            move.positions.extend(reached.positions)
            return replace(known, open={**known.open, reached.name: move})
        case "topic_move_stitched":
            stitched = event.topic_move_stitched
            if stitched.name not in known.open:
                return known
            move = after_first_cut(known.open[stitched.name], event)
            return replace(known, open={**known.open, stitched.name: move})
        case "topic_move_leftovers_deleted":
            name, topics = event.topic_move_leftovers_deleted.name, event.topic_move_leftovers_deleted.topics
            if name not in known.ended:
                return known
            move = _changed(known.ended[name])
            move.deleted.extend(topics)
            return replace(known, ended={**known.ended, name: move})
        case "topic_move_certified":
            name, certificate = event.topic_move_certified.name, event.topic_move_certified.certificate
            if name not in known.ended:
                return known
            move = _changed(known.ended[name])
            move.certificate.CopyFrom(certificate)
            return replace(known, ended={**known.ended, name: move})
        case "topic_move_old_log_grown":
            name, strays = event.topic_move_old_log_grown.name, event.topic_move_old_log_grown.strays
            if name not in known.ended:
                return known
            move = _changed(known.ended[name])
            del move.strays[:]
            move.strays.extend(strays)
            return replace(known, ended={**known.ended, name: move})
        case "topic_move_ended":
            end = event.topic_move_ended
            if end.name not in known.open:
                return known
            move = _changed(
                known.open[end.name], state=end.state, problem=end.problem, revision=end.revision,
                pause=end.pause.ToTimedelta(), hindered=False,
            )  # fmt: skip
            if end.cuts:  # moves of the first release tell their cuts only here
                del move.cuts[:]
                move.cuts.extend(end.cuts)
            move.end_time.CopyFrom(event.time)
            kept = {**known.ended, end.name: move}
            while len(kept) > KEPT:  # a move with a tail is kept until the tail is deleted, if possible
                settled = (name for name, each in kept.items() if is_settled(each))
                del kept[next(iter(kept)) if len(kept) > 2 * KEPT else next(settled, next(iter(kept)))]
            return TopicMoves({name: each for name, each in known.open.items() if name != end.name}, kept)
        case _:
            return known


def is_stitched(spec: topic_moves.TopicMoveSpec) -> bool:
    """Whether the records stay where they are."""
    return spec.kind == STITCH


@dataclass(frozen=True, slots=True)
class Side:
    """A topic on one cluster, as control saw it."""

    place: Place
    partitions: int
    """0: there is no such topic."""
    settings: Mapping[str, str]


def source_of(spec: topic_moves.TopicMoveSpec, table: RoutingTable) -> tuple[Place, Place]:
    """The topic's place, and its place after the move. Refuses a move that leads nowhere."""
    if not spec.topic:
        raise InvalidField("spec.topic", "is required: name the topic as clients know it")
    if spec.kind not in KINDS:
        raise InvalidField("spec.kind", f"{spec.kind} is no kind of move that this release knows")
    if spec.target_cluster not in table.clusters:
        known = ", ".join(sorted(table.clusters)) or "none"
        raise InvalidField("spec.target_cluster", f"cluster {spec.target_cluster!r} is not registered (known: {known})")
    budget_ms = durations.whole_ms(spec.hold_budget)
    if not 0 <= budget_ms <= LARGEST_BUDGET_MS:
        raise InvalidField("spec.hold_budget", OUT_OF_BUDGET.format(budget_ms))
    if spec.bytes_per_second < 0:
        raise InvalidField("spec.bytes_per_second", f"{spec.bytes_per_second} is less than 0; 0 means without a bound")
    if spec.delete_old and spec.kind != STITCH_THEN_COPY:
        raise InvalidField("spec.delete_old", "is for a move of kind STITCH_THEN_COPY; leave it out")
    if spec.bytes_per_second and is_stitched(spec):
        raise InvalidField("spec.bytes_per_second", "bounds a copy, and a stitched move copies nothing; leave it out")
    route = table.route(spec.topic)
    if route is None:
        raise InvalidField("spec.topic", f"no rule leads topic {spec.topic!r} to a cluster")
    refuse_differing(table, spec.topic)
    source = Place(route.cluster, route.upstream_topic)
    target = Place(spec.target_cluster, without_tail(route.upstream_topic))
    is_log_stitched = log_of(table, spec.topic) is not None
    if route.cluster == spec.target_cluster and not (
        spec.kind == STITCH_THEN_COPY and is_log_stitched and source != target
    ):
        raise NotAllowed("TOPIC_IS_THERE", f"topics/{spec.topic}", f"topic {spec.topic!r} is on {route.cluster!r}")
    if spec.kind == topic_moves.TOPIC_MOVE_KIND_COPY and is_log_stitched:
        text = (
            f"the log of topic {spec.topic!r} is stitched together from parts on several clusters, and a copy of kind "
            f"COPY reads one of them; leave --copy out, or move it with --stitch"
        )
        raise NotAllowed("LOG_IS_STITCHED", f"topics/{spec.topic}", text)
    return source, target


def refuse_differing(table: RoutingTable, topic: str) -> None:
    """Refuses a topic that some clients have elsewhere."""
    for version in table.living_rules.about_some:
        if version.rule.match.subject is Subject.TOPIC and version.rule.match.matches(topic):
            text = (
                f"rule {version.rule.rule_id!r} leads topic {topic!r} elsewhere for some clients, and a log is one "
                "for all; remove the rule first"
            )
            raise NotAllowed("TOPIC_DIFFERS_BY_CLIENT", f"rules/{version.rule.rule_id}", text)


def refuse_moving(known: TopicMoves, topic: str) -> None:
    """Refuses a topic that has an open move."""
    move = next((each for each in known.open.values() if each.spec.topic == topic), None)
    if move is not None:
        text = f"{move.name} moves topic {topic!r} just now; wait for its end, or cancel it"
        raise NotAllowed("TOPIC_IS_MOVING", f"topics/{topic}", text)


def check_sides(topic: str, source: Side, target: Side, *, stitched: bool = False) -> None:
    """Refuses a topic that can't be copied with its offsets, or whose log can't be stitched."""
    name = f"topics/{topic}"
    if not source.partitions:
        raise NotAllowed("NO_SUCH_TOPIC", name, f"topic {topic!r} does not exist on {source.place.cluster!r}")
    if source.partitions > MOST_PARTITIONS:
        text = f"topic {topic!r} has {source.partitions} partitions, and a move can have {MOST_PARTITIONS}"
        raise NotAllowed("TOO_MANY_PARTITIONS", name, text)
    for side in (source, target):
        if "compact" in side.settings.get("cleanup.policy", ""):
            why = (
                "no cluster would remove a record of the old part when a newer one of its key is in the new part"
                if stitched
                else "its log has holes in its batches, and brokers take no such batch from a producer"
            )
            text = f"topic {topic!r} is compacted on {side.place.cluster!r}: {why}; mirror the topic, then set its rule"
            raise NotAllowed("TOPIC_IS_COMPACTED", name, text)
        if side.settings.get("message.timestamp.type") == "LogAppendTime" and not stitched:
            text = (
                f"topic {topic!r} has message.timestamp.type=LogAppendTime on {side.place.cluster!r}: the copy would "
                "have other times; set CreateTime there"
            )
            raise NotAllowed("TOPIC_HAS_BROKER_TIME", name, text)
    if target.partitions and target.partitions != source.partitions:
        text = (
            f"topic {topic!r} has {source.partitions} partitions on {source.place.cluster!r}, and {target.partitions} "
            f"on {target.place.cluster!r}: the move needs as many"
        )
        raise NotAllowed("OTHER_PARTITIONS", name, text)


def started(
    known: TopicMoves,
    name: str,
    spec: topic_moves.TopicMoveSpec,
    way: tuple[Place, Place],
    table: RoutingTable,
    actor: str,
    reason: str,
    now: datetime,
) -> events.TopicMoveStarted:
    """The event of a move that can begin. A topic that is stitched there already lacks the copy behind the stitch."""
    if len(known.open) >= MAX_OPEN:
        text = f"{len(known.open)} moves are open, and no more are possible; wait until some end, or cancel them"
        raise NotAllowed("TOO_MANY_MOVES", TOPIC_MOVES, text)
    refuse_moving(known, spec.topic)
    source, target = way
    is_both = spec.kind == STITCH_THEN_COPY
    if is_both and source.cluster == target.cluster:
        copy = whole_copy(table, spec.topic, source, target, spec.bytes_per_second)
    else:
        there = tail_of(target.upstream_topic, name) if is_both else target.upstream_topic
        copy = record_rules.CopySpec(
            source_cluster=source.cluster, topic=source.upstream_topic, target_cluster=target.cluster,
            target_topic=there, bytes_per_second=spec.bytes_per_second,
        )  # fmt: skip
    move = topic_moves.MoveWithRecords(name=name, spec=spec, copy=copy, actor=actor, reason=reason)
    move.state = before_cut(move)
    move.spec.hold_budget.CopyFrom(durations.of_ms(durations.whole_ms(spec.hold_budget) or USUAL_BUDGET_MS))
    move.create_time.FromDatetime(now)
    return events.TopicMoveStarted(move=move)


def cancelled(known: TopicMoves, name: str) -> events.TopicMoveEnded:
    """The event of a cancellation; refused from the cut on."""
    move = known.get(name)
    if move.state != before_cut(move):
        text = f"move {name!r} is {WORDS[move.state]}: it can be cancelled only before its cut"
        raise NotAllowed("TOO_LATE_TO_CANCEL", name, text)
    return events.TopicMoveEnded(name=name, state=CANCELLED)


def is_switched(move: topic_moves.MoveWithRecords, table: RoutingTable) -> bool:
    """Whether the rules lead the topic to the target of the move."""
    return _place(move, table) == Place(move.copy.target_cluster, move.copy.target_topic)


def is_elsewhere(move: topic_moves.MoveWithRecords, table: RoutingTable) -> bool:
    """Whether somebody has changed the rules, so that the topic is not at the source of the copy."""
    return _place(move, table) != Place(move.copy.source_cluster, move.copy.topic)


def led_elsewhere(move: topic_moves.MoveWithRecords) -> NotAllowed:
    """The refusal to cut then."""
    text = f"the rules do not lead topic {move.spec.topic!r} to {move.copy.source_cluster!r} any more"
    return NotAllowed("TOPIC_IS_ELSEWHERE", f"topics/{move.spec.topic}", text)


def to_certify(known: TopicMoves) -> list[topic_moves.MoveWithRecords]:
    """The moves that lack their certificates."""
    return [
        each for each in known.ended.values() if each.state == DONE and each.cuts and not each.HasField("certificate")
    ]


def to_watch(known: TopicMoves, table: RoutingTable, now: datetime) -> list[topic_moves.MoveWithRecords]:
    """The moves to whose old logs nobody should write, and somebody may."""
    return [
        each
        for each in known.ended.values()
        if each.state == DONE
        and each.cuts
        and now - each.end_time.ToDatetime(UTC) < WATCHED
        and each.copy.source_cluster in table.clusters
        and not each.deleted
        and not has_gone_on(known, each, table)
    ]


def grown(move: topic_moves.MoveWithRecords, ends: Mapping[int, int]) -> list[topic_moves.TopicMoveStrays]:
    """All that is behind the cut in the old log; empty if that is known already. `ends`: by partition."""
    found = [
        topic_moves.TopicMoveStrays(partition=cut.partition, start=cut.end, end=ends[cut.partition])
        for cut in move.cuts
        if ends.get(cut.partition, 0) > cut.end
    ]
    return [] if found == list(move.strays) else found


def has_gone_on(known: TopicMoves, move: topic_moves.MoveWithRecords, table: RoutingTable) -> bool:
    """Whether the old cluster may have newer records than those of the cut: the topic has moved since."""
    return not is_switched(move, table) or any(
        each.spec.topic == move.spec.topic
        and each.copy.target_cluster == move.copy.source_cluster
        and newest_first(each) < newest_first(move)
        for each in (*known.open.values(), *known.ended.values())
    )


def lost(move: topic_moves.MoveWithRecords, here: int | None, there: int | None) -> str:
    """The reason why no attempt can go on with a copy, given the partitions on both sides; empty if there is none."""
    topic, source, target = move.copy.topic, move.copy.source_cluster, move.copy.target_cluster
    if here is None:
        return f"topic {topic!r} was deleted on {source!r} while it was copied; delete its copy on {target!r}"
    if there is None:
        return (
            f"topic {move.copy.target_topic!r} was deleted on {target!r} while it was copied; nothing has changed on "
            f"{source!r}, and clients go on there; begin the move again"
        )
    if here != there:
        return (
            f"topic {topic!r} has {here} partitions on {source!r} now, and its copy on {target!r} has {there}; clients "
            f"go on at {source!r}; delete the copy, and begin the move again"
        )
    return ""


def _place(move: topic_moves.MoveWithRecords, table: RoutingTable) -> Place | None:
    route = table.route(move.spec.topic)
    return None if route is None else Place(route.cluster, route.upstream_topic)


def is_near(move: topic_moves.MoveWithRecords, progress: record_rules.RecordRuleProgress | None) -> bool:
    """Whether the copy takes so little time for its tail that a cut may begin."""
    if progress is None or progress.problem or not progress.HasField("tail_ms"):
        return False
    return progress.tail_ms <= durations.whole_ms(move.spec.hold_budget) * TAIL_PART


def _with(known: TopicMoves, name: str, **fields: object) -> TopicMoves:
    before = known.open.get(name)
    return known if before is None else replace(known, open={**known.open, name: _changed(before, **fields)})


def _changed(before: topic_moves.MoveWithRecords, **fields: object) -> topic_moves.MoveWithRecords:
    after = topic_moves.MoveWithRecords()
    after.CopyFrom(before)
    for name, value in fields.items():
        setattr(after, name, value)
    return after
