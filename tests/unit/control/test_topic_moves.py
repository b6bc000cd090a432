"""A move of a topic with its records, as its events tell it, and the topics that can't move so."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from google.protobuf.message import Message

from mesh.record_rules import RecordRules, fold_record_rules
from mesh.routing import Place
from mesh.rpc import events, record_rules, topic_moves
from services.control.domain.errors import NotAllowed, Unknown
from services.control.domain.topic_moves.moves import (
    CANCELLED,
    COPYING,
    CUTTING,
    DONE,
    WATCHED,
    Side,
    TopicMoves,
    cancelled,
    check_sides,
    fold_topic_moves,
    grown,
    is_elsewhere,
    is_near,
    is_switched,
    lost,
    to_certify,
    to_watch,
)
from services.control.store.drafts import PAYLOADS
from tests.unit.control.worlds import table

NAME = "topicmoves/1"
COPY = record_rules.CopySpec(source_cluster="c1", topic="apples", target_cluster="c2", target_topic="apples")
STARTED = events.TopicMoveStarted(
    move=topic_moves.MoveWithRecords(
        name=NAME, spec=topic_moves.TopicMoveSpec(topic="apples", target_cluster="c2"), copy=COPY, state=COPYING
    )
)
BEGUN = events.TopicMoveCutBegun(name=NAME)
GIVEN_UP = events.TopicMoveCutGivenUp(name=NAME, problem="gateway-1 did not hold in time")
HINDERED = events.TopicMoveHindered(name=NAME, problem="the disk of c2 is full")
GOES_ON = events.TopicMoveHindered(name=NAME)
REACHED = events.TopicMoveCutReached(
    name=NAME,
    cuts=[topic_moves.TopicMoveCut(partition=0, end=9)],
    positions=[topic_moves.TopicMovePosition(group="g", partition=0, before=7, after=7)],
)
CERTIFIED = events.TopicMoveCertified(name=NAME, certificate=topic_moves.TopicMoveCertificate(confirmed=True))
DONE_AFTER_CUT = events.TopicMoveEnded(name=NAME, state=DONE, revision=7)
ENDED = events.TopicMoveEnded(name=NAME, state=DONE, revision=7, cuts=[topic_moves.TopicMoveCut(partition=0, end=9)])


def after(*payloads: Message) -> tuple[TopicMoves, RecordRules]:
    moves = TopicMoves()
    rules: RecordRules = {}
    for position, payload in enumerate(payloads, 1):
        event = events.Event(position=position)
        getattr(event, PAYLOADS[type(payload)]).CopyFrom(payload)
        moves, rules = fold_topic_moves(moves, event), fold_record_rules(rules, event)
    return moves, rules


def test_a_cut_that_was_given_up_leaves_the_move_copying_and_says_why() -> None:
    moves, rules = after(STARTED, BEGUN, GIVEN_UP)
    move = moves.get(NAME)
    assert (move.state, move.problem, move.cuts_given_up) == (COPYING, GIVEN_UP.problem, 1)
    assert rules["move-1"].spec.copy == COPY


def test_a_copy_is_there_as_long_as_its_move_is_open() -> None:
    assert "move-1" in after(STARTED, BEGUN)[1]
    moves, rules = after(STARTED, BEGUN, ENDED)
    assert not rules
    assert not moves.open
    assert moves.get(NAME).cuts == ENDED.cuts


def test_an_event_about_a_move_that_has_ended_changes_nothing() -> None:
    ended, _ = after(STARTED, BEGUN, ENDED)
    assert after(STARTED, BEGUN, ENDED, GIVEN_UP, BEGUN, ENDED)[0] == ended


def test_a_copy_that_stands_says_why_until_it_goes_on() -> None:
    move = after(STARTED, HINDERED)[0].get(NAME)
    assert (move.state, move.hindered, move.problem) == (COPYING, True, HINDERED.problem)
    move = after(STARTED, HINDERED, GOES_ON)[0].get(NAME)
    assert (move.hindered, move.problem) == (False, "")


def test_a_move_keeps_the_cut_that_was_reached_and_forgets_the_one_that_was_given_up() -> None:
    moves, _ = after(STARTED, BEGUN, REACHED, DONE_AFTER_CUT)
    assert (moves.get(NAME).cuts, moves.get(NAME).positions) == (REACHED.cuts, REACHED.positions)
    assert to_certify(moves) == [moves.get(NAME)]
    moves, _ = after(STARTED, BEGUN, REACHED, GIVEN_UP)
    assert not moves.get(NAME).cuts
    assert not moves.get(NAME).positions


def test_a_move_is_certified_once_after_its_end() -> None:
    moves, _ = after(STARTED, BEGUN, REACHED, DONE_AFTER_CUT, CERTIFIED)
    assert moves.get(NAME).certificate == CERTIFIED.certificate
    assert not to_certify(moves)


def test_what_somebody_writes_behind_the_cut_is_told_once_and_again_when_it_is_more() -> None:
    move = after(STARTED, BEGUN, REACHED, DONE_AFTER_CUT)[0].get(NAME)
    assert not grown(move, {0: 9})
    assert not grown(move, {})
    [strays] = grown(move, {0: 11})
    told = events.TopicMoveOldLogGrown(name=NAME, strays=[strays])
    move = after(STARTED, BEGUN, REACHED, DONE_AFTER_CUT, told)[0].get(NAME)
    assert list(move.strays) == [strays]
    assert not grown(move, {0: 11})
    assert grown(move, {0: 12}) == [topic_moves.TopicMoveStrays(partition=0, start=9, end=12)]


@pytest.mark.parametrize(
    ("cluster", "later", "watched"),
    [("c2", timedelta(0), True), ("c2", WATCHED, False), ("c1", timedelta(0), False)],
)
def test_an_old_log_is_watched_for_a_while_unless_the_topic_is_back(
    cluster: str, later: timedelta, watched: bool
) -> None:
    moves, _ = after(STARTED, BEGUN, REACHED, DONE_AFTER_CUT)
    now = moves.get(NAME).end_time.ToDatetime(UTC) + later
    assert to_watch(moves, table(f"apples->{cluster}"), now) == ([moves.get(NAME)] if watched else [])


@pytest.mark.parametrize(
    ("here", "there", "says"),
    [(1, 1, ""), (None, 1, "deleted on 'c1'"), (1, None, "deleted on 'c2'"), (2, 1, "2 partitions on 'c1' now")],
)
def test_a_copy_whose_topic_is_gone_or_has_grown_is_lost(here: int | None, there: int | None, says: str) -> None:
    found = lost(after(STARTED)[0].get(NAME), here, there)
    assert says in found
    assert bool(found) is bool(says)


def test_a_move_can_be_cancelled_only_before_its_cut() -> None:
    assert cancelled(after(STARTED)[0], NAME).state == CANCELLED
    for payloads in ((STARTED, BEGUN), (STARTED, BEGUN, ENDED)):
        with pytest.raises(NotAllowed, match="only before its cut"):
            cancelled(after(*payloads)[0], NAME)
    with pytest.raises(Unknown, match="topicmoves/2"):
        cancelled(after(STARTED)[0], "topicmoves/2")


@pytest.mark.parametrize(
    ("cluster", "switched", "elsewhere"), [("c1", False, False), ("c2", True, True), ("c3", False, True)]
)
def test_the_rules_tell_where_a_move_stands(cluster: str, switched: bool, elsewhere: bool) -> None:
    move = after(STARTED, BEGUN)[0].get(NAME)
    assert move.state == CUTTING
    rules = table(f"apples->{cluster}")
    assert (is_switched(move, rules), is_elsewhere(move, rules)) == (switched, elsewhere)


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ((0, {}), (0, {}), "does not exist on 'c1'"),
        ((3, {"cleanup.policy": "compact,delete"}), (0, {}), "is compacted on 'c1'"),
        ((3, {}), (3, {"cleanup.policy": "compact"}), "is compacted on 'c2'"),
        ((3, {"message.timestamp.type": "LogAppendTime"}), (0, {}), "set CreateTime there"),
        ((3, {}), (4, {}), "3 partitions on 'c1', and 4 on 'c2'"),
        ((1001, {}), (0, {}), "a move can have 1000"),
    ],
)
def test_topics_that_cant_be_copied_with_their_offsets_are_refused(
    source: tuple[int, dict[str, str]], target: tuple[int, dict[str, str]], problem: str
) -> None:
    here, there = Side(Place("c1", "apples"), *source), Side(Place("c2", "apples"), *target)
    with pytest.raises(NotAllowed, match=problem):
        check_sides("apples", here, there)


def test_a_cut_begins_when_the_copy_takes_a_tenth_of_the_budget_for_its_tail() -> None:
    move = after(STARTED)[0].get(NAME)
    move.spec.hold_budget.FromSeconds(1)
    said = record_rules.RecordRuleProgress(lag=20_000, partition_count=1, tail_ms=100)
    assert is_near(move, said)
    said.tail_ms = 101
    assert not is_near(move, said)


def test_a_copy_that_nobody_runs_or_that_has_not_begun_is_not_near() -> None:
    move = after(STARTED)[0].get(NAME)
    said = record_rules.RecordRuleProgress(partition_count=1, tail_ms=0)
    assert is_near(move, said)
    said.problem = "no router says that it runs it"
    assert not is_near(move, said)
    assert not is_near(move, None)
    assert not is_near(move, record_rules.RecordRuleProgress(partition_count=1))
