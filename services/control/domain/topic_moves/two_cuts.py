"""Moves that stitch first, and copy the whole log behind the stitch: their two cuts, and the topics that they leave.

Theory of operation
1. The first cut stitches. New records go to a topic of their own on the new cluster, the tail. So at no time has the
   stitched log two names on one cluster, and no request has to name it in two ways (`gateway/requests/records`).
2. Routers copy the whole log, with the offsets that clients see, to the topic's own name on the new cluster.
3. The second cut leads clients from the tail to the copy. The log is that of one topic again.
4. Between the cuts the log stays stitched, and that is a whole state: a move may end there. Gateways may ask for the
   producers of the tail as long as they expect repeated batches. Then nobody needs the tail, and it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration

from mesh.routing import Place, RoutingTable
from mesh.rpc import events, record_rules, topic_moves
from mesh.stitches import LogPart
from mesh.stitches.codec import part_from_proto
from services.control.domain.errors import NotAllowed
from services.control.domain.stitches.logs import in_force, log_of, logs_of

COPY = topic_moves.TOPIC_MOVE_KIND_COPY
STITCH = topic_moves.TOPIC_MOVE_KIND_STITCH
STITCH_THEN_COPY = topic_moves.TOPIC_MOVE_KIND_STITCH_THEN_COPY
BEST_FIRST: Final[tuple[topic_moves.TopicMoveKind.ValueType, ...]] = (STITCH_THEN_COPY, COPY)
"""The order in which control tries kinds if the operator names none."""
COPYING = topic_moves.TOPIC_MOVE_STATE_COPYING
WAITING = topic_moves.TOPIC_MOVE_STATE_WAITING
DONE = topic_moves.TOPIC_MOVE_STATE_DONE
KINDS: Final = {COPY: COPYING, STITCH: WAITING, STITCH_THEN_COPY: WAITING}
"""Kind -> the state before the first cut."""
NEEDED: Final = timedelta(minutes=15)
"""The time after a cut in which gateways expect repeated batches, and may ask the old log about them."""
LONGEST_NAME: Final = 249
_TAIL: Final = re.compile(r"\.tail-[0-9a-z]+$")


def tail_of(topic: str, move: str) -> str:
    """The name of the tail on the new cluster. `move`: topicmoves/{id}."""
    return f"{topic}.tail-{move.rpartition('/')[2]}"


def without_tail(upstream_topic: str) -> str:
    """The topic's own name on clusters, while it may be that of a tail."""
    return _TAIL.sub("", upstream_topic)


def stitches_next(move: topic_moves.MoveWithRecords) -> bool:
    """Whether the next cut of the move adds a part to the log."""
    return move.spec.kind in (STITCH, STITCH_THEN_COPY) and not move.copy.parts


def before_cut(move: topic_moves.MoveWithRecords) -> topic_moves.TopicMoveState.ValueType:
    """The state in which the move waits for its next cut."""
    return WAITING if stitches_next(move) else COPYING


def parts_of(move: topic_moves.MoveWithRecords) -> list[LogPart]:
    """The parts of the log that is copied; none if it is not stitched."""
    return [part_from_proto(each) for each in move.copy.parts]


def end_of(move: topic_moves.MoveWithRecords, cut: topic_moves.TopicMoveCut) -> int:
    """The end of the copied log at the cut, as the new cluster counts."""
    return cut.client_offset if move.copy.parts else cut.end


def check_fits(table: RoutingTable, topic: str, target: Place) -> None:
    """Refuses a log that can't be stitched first because of its names."""
    name = f"topics/{topic}"
    if len(tail_of(target.upstream_topic, "x" * 12)) > LONGEST_NAME:
        text = f"the name of topic {target.upstream_topic!r} is so long that its tail can have no name beside it"
        raise NotAllowed("NAME_TOO_LONG", name, text)
    route = table.route(topic)
    parts = () if route is None else in_force(log_of(table, topic), route.stay)
    if any(part.is_past for part in parts):
        text = f"topic {topic!r} is a fork, and its past is the log of another topic; move it with --stitch"
        raise NotAllowed("LOG_IS_A_FORK", name, text)
    if route is not None and route.cluster != target.cluster and any(part.cluster == target.cluster for part in parts):
        text = (
            f"the log of topic {topic!r} has a part on {target.cluster!r} already, and clients can't read a tail of "
            "another name beside it; move it with --stitch"
        )
        raise NotAllowed("LOG_HAS_PART_THERE", name, text)


def whole_copy(table: RoutingTable, topic: str, source: Place, target: Place, rate: int) -> record_rules.CopySpec:
    """The copy of the stitched log of a topic, whose present part is at `source`."""
    log, route = log_of(table, topic), table.route(topic)
    assert log is not None, "the log of the topic is stitched"
    assert route is not None, "the rules lead the topic to its present part"
    return record_rules.CopySpec(
        source_cluster=source.cluster, topic=source.upstream_topic, target_cluster=target.cluster,
        target_topic=target.upstream_topic, bytes_per_second=rate, parts=log.parts[: len(in_force(log, route.stay))],
    )  # fmt: skip


def stitched_by(
    move: topic_moves.MoveWithRecords, table: RoutingTable, revision: int, pause: Duration
) -> events.TopicMoveStitched:
    """The event of the first cut, when gateways have switched."""
    tail = Place(move.copy.target_cluster, move.copy.target_topic)
    whole = tail._replace(upstream_topic=without_tail(tail.upstream_topic))
    copy = whole_copy(table, move.spec.topic, tail, whole, move.spec.bytes_per_second)
    return events.TopicMoveStitched(name=move.name, copy=copy, revision=revision, pause=pause)


def after_first_cut(move: topic_moves.MoveWithRecords, event: events.Event) -> topic_moves.MoveWithRecords:
    """The move behind its first cut, copying."""
    stitched = event.topic_move_stitched
    after = topic_moves.MoveWithRecords()
    after.CopyFrom(move)
    first = topic_moves.TopicMoveStitch(
        way=move.copy, cuts=move.cuts, revision=stitched.revision, pause=stitched.pause, end_time=event.time
    )
    after.stitch.CopyFrom(first)
    after.copy.CopyFrom(stitched.copy)
    after.state, after.problem, after.hindered = COPYING, "", False
    del after.cuts[:], after.positions[:]
    return after


def leftovers(move: topic_moves.MoveWithRecords, table: RoutingTable, busy: set[Place], now: datetime) -> list[Place]:
    """The topics that control may delete now behind an ended move. `busy`: places of open moves."""
    if move.spec.kind != STITCH_THEN_COPY or not move.HasField("end_time"):
        return []
    deleted = {Place(each.cluster_name, each.topic) for each in move.deleted}
    used = busy | _used(move, table)
    return [
        place
        for place in _left_by(move, now)
        if place not in deleted and place not in used and place.cluster in table.clusters
    ]


def is_settled(move: topic_moves.MoveWithRecords) -> bool:
    """Whether control has nothing to delete behind an ended move any more, or never had."""
    if move.spec.kind != STITCH_THEN_COPY or move.state != DONE:
        return True
    return len(move.deleted) >= 1 + move.spec.delete_old


def places_of(copy: record_rules.CopySpec) -> Iterator[Place]:
    """All places of a copy."""
    yield Place(copy.source_cluster, copy.topic)
    yield Place(copy.target_cluster, copy.target_topic)
    for part in copy.parts:
        yield Place(part.cluster_name, part.topic)


def _left_by(move: topic_moves.MoveWithRecords, now: datetime) -> Iterator[Place]:
    first = move.stitch.way if move.HasField("stitch") else move.copy
    tail = Place(first.target_cluster, first.target_topic)
    if move.state != DONE:
        if not move.copy.parts:  # the first cut was never made
            yield tail
        return
    if not move.certificate.confirmed or now - move.end_time.ToDatetime(UTC) < NEEDED:
        return
    yield Place(move.copy.source_cluster, move.copy.topic) if move.copy.parts else tail
    if move.spec.delete_old and move.HasField("stitch"):
        yield Place(first.source_cluster, first.topic)


def _used(move: topic_moves.MoveWithRecords, table: RoutingTable) -> set[Place]:
    route = table.route(move.spec.topic)
    used = {Place(part.cluster_name, part.topic) for log in logs_of(table).values() for part in log.parts}
    return used if route is None else used | {Place(route.cluster, route.upstream_topic)}
