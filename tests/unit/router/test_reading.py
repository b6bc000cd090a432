"""From records to notices: the ledger, the bulletin, and what a data plane's session does with too much of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf.message import DecodeError

from mesh.event_log import PIECE_BYTES, Chain, NewerFormatError, records_of
from mesh.routing import LogGapError
from mesh.rpc import admin, events
from services.router.agents.bulletin import Bulletin, Notice
from services.router.agents.ledger import Ledger
from services.router.agents.snapshots import hash_of
from services.router.discovery.member import Apply, Hello, News
from services.router.discovery.session import MAX_OUTBOX, Session
from tests.unit.mesh.test_event_log import A_LATER_KIND
from tests.unit.router.decisions import DecisionLog, two_clusters


def read(log: DecisionLog) -> Ledger:
    ledger = Ledger()
    for offset, event in enumerate(log.events):
        ledger.fold(event.SerializeToString(), offset)
    return ledger


def test_a_reading_yields_what_the_log_says() -> None:
    log = two_clusters()
    assert read(log).state == log.state


def test_a_reading_has_caught_up_when_it_is_past_the_end_that_the_log_had_at_its_start() -> None:
    ledger = read(two_clusters())
    assert not ledger.caught_up
    ledger.end_at_start = 4
    assert not ledger.caught_up
    ledger.end_at_start = 3
    assert ledger.caught_up


def test_records_that_come_twice_change_nothing() -> None:
    log = two_clusters()
    ledger = read(log)
    folded = ledger.fold(log.events[1].SerializeToString(), 3)
    assert folded is not None
    assert not folded.moves
    assert ledger.state == log.state


def test_decisions_that_are_not_about_routing_move_the_position_only() -> None:
    log = two_clusters()
    ledger = read(log)
    log.instance()
    folded = ledger.fold(log.last.SerializeToString(), 3)
    assert folded is not None
    assert not folded.moves
    assert ledger.state.position == 4


def test_a_gap_ends_the_reading() -> None:
    log = two_clusters()
    ledger = Ledger()
    ledger.fold(log.events[0].SerializeToString(), 0)
    with pytest.raises(LogGapError, match="event 3 follows 1"):
        ledger.fold(log.events[2].SerializeToString(), 1)


def test_an_event_that_only_a_newer_release_knows_ends_the_reading() -> None:
    log = two_clusters()
    ledger = Ledger()
    ledger.fold(log.events[0].SerializeToString(), 0)
    newer = events.Event(position=2, stream="gates/1").SerializeToString() + A_LATER_KIND
    with pytest.raises(NewerFormatError, match="event 2 of 'gates/1' is of a kind that this release does not know"):
        ledger.fold(newer, 1)
    assert ledger.position == 1


def chained(log: DecisionLog) -> list[bytes]:
    """The records of the log, with the hashes that control puts in."""
    chain, values = Chain(), []
    for event in log.events:
        event.previous_hash = chain.hash
        values.append(event.SerializeToString())
        chain = chain.after(event, values[-1])
    return values


def test_an_event_that_was_changed_is_told_and_stops_nothing() -> None:
    log = two_clusters()
    log.rule("bananas", to="c2")
    values = chained(log)
    forged = events.Event.FromString(values[1])
    forged.actor = "mallory"
    ledger, clean = Ledger(), Ledger()
    for offset, value in enumerate(values):
        clean.fold(value, offset)
        ledger.fold(forged.SerializeToString() if offset == 1 else value, offset)
    assert (ledger.changed_at, clean.changed_at) == (2, 0)
    assert ledger.state == clean.state


def test_behind_a_snapshot_of_an_older_release_the_chain_begins_with_the_first_event_that_is_chained() -> None:
    log = two_clusters()
    made = read(log).snapshot("members/router-1")
    assert made is not None
    older = replace(made, chain_hash=b"")
    log.rule("bananas", to="c2")
    log.rule("cherries", to="c2")
    log.rule("dates", to="c2")
    values = chained(log)
    ledger = Ledger(older)
    ledger.fold(values[3], 3)
    assert ledger.changed_at == 0
    ledger.fold(values[4].replace(b"cherries", b"cherryes"), 4)
    ledger.fold(values[5], 5)
    assert ledger.changed_at == 5


def test_a_record_that_is_no_event_ends_the_reading() -> None:
    with pytest.raises(DecodeError):
        Ledger().fold(b"\xff\xff\xff", 0)


def test_the_bulletin_never_goes_back() -> None:
    log = two_clusters()
    earlier = log.state
    log.rule("bananas", to="c2")
    posted: list[Notice] = []
    bulletin = Bulletin(lambda: 0.0)
    bulletin.on_notice(posted.append)
    assert bulletin.post(log.state)
    assert not bulletin.post(earlier)
    assert [notice.state for notice in posted] == [log.state]


def test_a_hold_begins_when_the_pending_table_is_first_seen() -> None:
    log, now = two_clusters(), [100.0]
    bulletin = Bulletin(lambda: now[0])
    bulletin.post(log.move("apples", to="c2"))
    now[0] = 103.0
    bulletin.post(log.cluster("c3"))
    assert bulletin.latest is not None
    assert bulletin.latest.pending_since == 100.0


def session(log: DecisionLog) -> Session:
    opened = Session(admin.Member(name="members/g"), News(log.state, 5000))
    opened.tell(Hello(0))
    return opened


async def test_a_member_that_reads_slowly_gets_the_last_table_only() -> None:
    log = two_clusters()
    slow = session(log)
    for number in range(10):
        slow.tell(News(log.rule(f"t{number}", to="c2"), 5000))
    assert await slow.next_order() == Apply(log.state.effective)


async def test_a_member_that_reads_far_too_slowly_is_told_to_start_again() -> None:
    log = two_clusters()
    slow = session(log)
    for _ in range(MAX_OUTBOX):
        slow.tell(News(log.move("apples", to="c2"), 5000))
        slow.tell(News(log.abort(), 5000))
    assert slow.ending is not None
    assert "reads too slowly" in slow.ending.reason
    assert await slow.next_order() is None


def test_a_large_event_is_folded_when_its_last_piece_has_come_and_a_snapshot_names_that_record() -> None:
    log = DecisionLog()
    log.cluster("c1")
    log.rule("apples", to="c1")
    first, large = log.events
    large.reason = "x" * (2 * PIECE_BYTES)
    ledger = Ledger()
    ledger.fold(first.SerializeToString(), 0)
    records = list(records_of(2, large.SerializeToString()))
    folded = [ledger.fold(record.value, offset, record.headers) for offset, record in enumerate(records, start=1)]
    assert [each is None for each in folded] == [True, True, False]
    assert (ledger.position, ledger.next_offset) == (2, 4)
    snapshot = ledger.snapshot("r")
    assert snapshot is not None
    assert (snapshot.offset, snapshot.event_hash) == (3, hash_of(records[-1].value))
