"""A move that stitches first, and copies the whole log behind the stitch, as its events tell it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.message import Message

from mesh import durations
from mesh.record_rules import RecordRules, copy_of, fold_record_rules
from mesh.routing import Place, RoutingTable
from mesh.routing.policies import Policies
from mesh.rpc import events, record_rules, stitches, topic_moves
from mesh.wording import origin_of
from services.control.domain.errors import NotAllowed, Refusal
from services.control.domain.topic_moves.moves import (
    CANCELLED,
    COPYING,
    CUTTING,
    DONE,
    KEPT,
    TopicMoves,
    cancelled,
    fold_topic_moves,
    source_of,
    started,
)
from services.control.domain.topic_moves.two_cuts import (
    NEEDED,
    STITCH_THEN_COPY,
    WAITING,
    check_fits,
    end_of,
    leftovers,
    stitches_next,
    tail_of,
    whole_copy,
    without_tail,
)
from services.control.presentation.topic_moves import SENTENCES
from services.control.store.drafts import PAYLOADS
from tests.unit.control.test_stitched_logs import NEW, OLD, log, stitched
from tests.unit.control.worlds import table

NAME = "topicmoves/1"
NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
C1, TAIL, C2 = Place("c1", "apples"), Place("c2", "apples.tail-1"), Place("c2", "apples")
SPEC = topic_moves.TopicMoveSpec(topic="apples", target_cluster="c2", kind=STITCH_THEN_COPY, delete_old=True)
BEGUN = events.TopicMoveCutBegun(name=NAME)
GIVEN_UP = events.TopicMoveCutGivenUp(name=NAME, problem="gateway-1 did not hold in time")
FIRST_CUT = events.TopicMoveCutReached(
    name=NAME, cuts=[topic_moves.TopicMoveCut(partition=0, end=100, client_offset=100)]
)
LOG = log(OLD, NEW)
LOG.parts[1].topic = "apples.tail-1"
PARTS = record_rules.CopySpec(
    source_cluster="c2", topic="apples.tail-1", target_cluster="c2", target_topic="apples", parts=LOG.parts
)
STITCHED = events.TopicMoveStitched(name=NAME, copy=PARTS, revision=9, pause=durations.of_ms(80))
SECOND_CUT = events.TopicMoveCutReached(
    name=NAME, cuts=[topic_moves.TopicMoveCut(partition=0, end=20, client_offset=120)]
)
ENDED = events.TopicMoveEnded(name=NAME, state=DONE, revision=12, pause=durations.of_ms(90))
CERTIFIED = events.TopicMoveCertified(name=NAME, certificate=topic_moves.TopicMoveCertificate(confirmed=True))
TO_FIRST_CUT = (BEGUN, FIRST_CUT, STITCHED)


def begun() -> events.TopicMoveStarted:
    return started(TopicMoves(), NAME, SPEC, (C1, C2), table("apples->c1"), "ann", "", NOW)


def after(*payloads: Message) -> tuple[TopicMoves, RecordRules]:
    moves = TopicMoves()
    rules: RecordRules = {}
    for position, payload in enumerate(payloads, 1):
        event = events.Event(position=position)
        event.time.FromDatetime(NOW)
        getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
        moves, rules = fold_topic_moves(moves, event), fold_record_rules(rules, event)
    return moves, rules


def test_the_first_cut_leads_to_the_tail_and_copies_nothing_before_it() -> None:
    moves, rules = after(begun())
    move = moves.get(NAME)
    assert move.state == WAITING
    assert stitches_next(move)
    assert (move.copy.target_cluster, move.copy.target_topic) == TAIL
    assert not rules
    assert after(begun(), BEGUN, GIVEN_UP)[0].get(NAME).state == WAITING


def test_behind_the_first_cut_the_whole_log_is_copied_to_its_own_name() -> None:
    moves, rules = after(begun(), *TO_FIRST_CUT)
    move = moves.get(NAME)
    assert move.state == COPYING
    assert not stitches_next(move)
    assert (move.stitch.pause, move.stitch.revision, len(move.stitch.cuts)) == (durations.of_ms(80), 9, 1)
    assert (move.stitch.way.source_cluster, move.stitch.way.target_topic) == ("c1", TAIL.upstream_topic)
    assert not move.cuts
    assert rules[copy_of(NAME)].spec.copy == PARTS
    assert origin_of(move) == "c1"


def test_a_second_cut_that_is_given_up_goes_on_with_the_copy() -> None:
    moves, rules = after(begun(), *TO_FIRST_CUT, BEGUN, SECOND_CUT, GIVEN_UP)
    move = moves.get(NAME)
    assert (move.state, move.cuts_given_up) == (COPYING, 1)
    assert move.stitch.cuts
    assert not move.cuts
    assert copy_of(NAME) in rules


def test_the_second_cut_ends_the_move_and_its_copy() -> None:
    moves, rules = after(begun(), *TO_FIRST_CUT, BEGUN, SECOND_CUT, ENDED)
    move = moves.get(NAME)
    assert not rules
    assert (move.state, move.pause, move.stitch.pause) == (DONE, durations.of_ms(90), durations.of_ms(80))
    assert end_of(move, move.cuts[0]) == 120


def test_a_move_can_be_cancelled_in_front_of_each_of_its_cuts_and_not_within_one() -> None:
    for before in ((), TO_FIRST_CUT):
        assert cancelled(after(begun(), *before)[0], NAME).state == CANCELLED
        with pytest.raises(NotAllowed, match="only before its cut"):
            cancelled(after(begun(), *before, BEGUN)[0], NAME)


def test_a_topic_that_is_stitched_there_already_lacks_the_copy_only() -> None:
    known = _with_tail()
    assert source_of(SPEC, known) == (TAIL, C2)
    move = started(TopicMoves(), NAME, SPEC, (TAIL, C2), known, "ann", "", NOW).move
    assert move.state == COPYING
    assert move.copy == PARTS
    assert after(events.TopicMoveStarted(move=move))[1][copy_of(NAME)].spec.copy == PARTS
    other = topic_moves.TopicMoveSpec(topic="apples", target_cluster="c2", kind=topic_moves.TOPIC_MOVE_KIND_STITCH)
    with pytest.raises(NotAllowed, match="topic 'apples' is on 'c2'"):
        source_of(other, known)


def test_the_topic_keeps_its_own_name_when_it_leaves_a_tail() -> None:
    to_c3 = topic_moves.TopicMoveSpec(topic="apples", target_cluster="c3", kind=STITCH_THEN_COPY)
    assert source_of(to_c3, _with_tail()) == (TAIL, Place("c3", "apples"))
    assert without_tail(tail_of("apples", NAME)) == "apples"
    assert without_tail("apples.tail") == "apples.tail"


@pytest.mark.parametrize(
    ("known", "target", "says"),
    [
        (stitched(log(OLD, NEW), "c2"), C1, "has a part on 'c1' already"),
        (table("apples->c1"), Place("c2", "a" * 240), "so long that its tail can have no name"),
    ],
)
def test_logs_that_clients_could_not_read_in_parts_are_refused(known: RoutingTable, target: Place, says: str) -> None:
    with pytest.raises(NotAllowed, match=says):
        check_fits(known, "apples", target)


def test_the_old_topic_is_deleted_only_behind_a_move_that_leaves_one() -> None:
    spec = topic_moves.TopicMoveSpec(
        topic="apples", target_cluster="c2", kind=topic_moves.TOPIC_MOVE_KIND_COPY, delete_old=True
    )
    with pytest.raises(Refusal, match="is for a move of kind STITCH_THEN_COPY"):
        source_of(spec, table("apples->c1"))


def _with_tail() -> RoutingTable:
    """The topic is at its tail on c2."""
    plain = table("apples->c2:apples.tail-1")
    return RoutingTable(
        1, plain.clusters.values(), plain.versions, policies=Policies(stitch_policy=stitches.StitchPolicy(logs=[LOG]))
    )


DONE_MOVE = (*TO_FIRST_CUT, BEGUN, SECOND_CUT, ENDED)


@pytest.mark.parametrize(
    ("payloads", "later", "expected"),
    [
        ((*DONE_MOVE, CERTIFIED), NEEDED, [TAIL, C1]),
        ((*DONE_MOVE, CERTIFIED), NEEDED - timedelta(seconds=1), []),
        (DONE_MOVE, NEEDED, []),
        ((events.TopicMoveEnded(name=NAME, state=CANCELLED),), timedelta(0), [TAIL]),
        ((*TO_FIRST_CUT, events.TopicMoveEnded(name=NAME, state=CANCELLED)), NEEDED, []),
    ],
)
def test_a_topic_is_deleted_when_nobody_needs_it(
    payloads: tuple[Message, ...], later: timedelta, expected: list[Place]
) -> None:
    move = after(begun(), *payloads)[0].get(NAME)
    assert leftovers(move, table("apples->c2"), set(), NOW + later) == expected


def test_a_topic_that_is_in_use_again_is_not_deleted() -> None:
    move = after(begun(), *DONE_MOVE, CERTIFIED)[0].get(NAME)
    assert leftovers(move, table("apples->c1"), set(), NOW + NEEDED) == [TAIL], "the topic is back"
    assert leftovers(move, _with_tail(), set(), NOW + NEEDED) == [], "the tail and the old topic are parts"
    assert leftovers(move, table("apples->c2"), {C1}, NOW + NEEDED) == [TAIL], "an open move reads it"
    gone = topic_moves.TopicMoveLeftover(cluster_name="c2", topic=TAIL.upstream_topic)
    deleted = events.TopicMoveLeftoversDeleted(name=NAME, topics=[gone])
    again = after(begun(), *DONE_MOVE, CERTIFIED, deleted)[0].get(NAME)
    assert leftovers(again, table("apples->c2"), set(), NOW + NEEDED) == [C1]


def test_a_move_with_a_tail_is_remembered_longer_than_others() -> None:
    others = [
        payload
        for number in range(KEPT + 5)
        for payload in (
            events.TopicMoveStarted(move=topic_moves.MoveWithRecords(name=f"topicmoves/o{number}", state=COPYING)),
            events.TopicMoveEnded(name=f"topicmoves/o{number}", state=DONE),
        )
    ]
    moves, _ = after(begun(), *DONE_MOVE, CERTIFIED, *others)
    assert NAME in moves.ended
    assert len(moves.ended) == KEPT


def test_the_copy_of_a_log_has_the_parts_that_are_in_force() -> None:
    assert whole_copy(_with_tail(), "apples", TAIL, C2, 0) == PARTS


def test_each_step_is_a_sentence() -> None:
    event = events.Event(topic_move_stitched=STITCHED)
    assert SENTENCES["topic_move_stitched"](event) == (
        "topicmoves/1: the log is stitched, producers waited 80 ms; new records go to apples.tail-1 on c2, and the "
        "copy of the whole log to apples begins"
    )
    assert after(begun(), BEGUN)[0].get(NAME).state == CUTTING
