"""Snapshots as records and back: what is not whole, not readable or not of this log counts for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from mesh.record_rules import GroupSync, RecordRule, RecordRules, Rewind
from mesh.routing import RoutingState
from mesh.rpc import acls, events, record_rules, snapshots
from services.router.agents import snapshots as form
from services.router.agents.ledger import Ledger
from services.router.agents.snapshots import SLOTS, Snapshot, SnapshotError, found_in, read, records_of
from tests.unit.router.decisions import DecisionLog, two_clusters

EVERY = 10


def ledger_of(log: DecisionLog, begun: Snapshot | None = None) -> Ledger:
    ledger = Ledger(begun)
    for offset, event in enumerate(log.events):
        if offset >= ledger.next_offset:
            ledger.fold(event.SerializeToString(), offset)
    return ledger


def snapshot_of(log: DecisionLog) -> Snapshot:
    snapshot = ledger_of(log).snapshot("members/r1")
    assert snapshot is not None
    return snapshot


def at(position: int, rules: RecordRules | None = None) -> Snapshot:
    """A snapshot of little but its position."""
    return Snapshot(RoutingState(position=position), rules or {}, position - 1, b"hash", time=1.0)


def compacted(*snapshots_: Snapshot) -> Iterable[bytes]:
    """What the topic holds at the end, where these were written one after another."""
    return {key: value for each in snapshots_ for key, value in records_of(each, EVERY)}.values()


def positions(values: Iterable[bytes]) -> list[int]:
    return [found.position for found in found_in(values)]


def test_a_snapshot_is_read_as_it_was_written() -> None:
    log = two_clusters()
    log.about_policies(events.Event(acl_mode_set=events.AclModeSet(mode=acls.ACL_MODE_ENFORCE)))
    log.move("apples", to="c2")
    snapshot = snapshot_of(log)
    [found] = found_in(compacted(snapshot))
    assert read(found) == snapshot
    assert snapshot.routing.pending is not None


def test_a_reading_that_begins_with_a_snapshot_comes_to_the_same_state() -> None:
    log = two_clusters()
    begun = snapshot_of(log)
    log.move("apples", to="c2")
    log.switch()
    ledger = ledger_of(log, begun)
    assert ledger.state == log.state
    assert ledger.snapshot("members/r1") is not None


def test_record_rules_are_in_it_with_all_that_is_still_to_be_done() -> None:
    spec = record_rules.RecordRuleSpec(record_rule_id="copies")
    start = record_rules.StartAt(earliest=True)
    syncs = (GroupSync(6, frozenset({"b", "a"})), GroupSync(7, frozenset()))
    time = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    rules = {"copies": RecordRule(spec, 4, 7, "alice", time, True, (Rewind(5, start),), syncs)}
    [found] = found_in(compacted(at(7, rules)))
    assert read(found).record_rules == rules


def test_it_knows_the_log_that_it_is_of() -> None:
    log = two_clusters()
    [found] = found_in(compacted(snapshot_of(log)))
    assert found.offset == 2
    assert found.is_of(log.events[2].SerializeToString())
    assert not found.is_of(two_clusters().events[2].SerializeToString())


def test_the_newest_comes_first_whoever_wrote_last() -> None:
    assert positions(compacted(at(20), at(40), at(30))) == [40, 30, 20]


def test_one_that_is_late_takes_no_newer_ones_place() -> None:
    late = at(21)
    assert positions(compacted(late, at(30), at(40), late)) == [40, 30, 21]


def test_what_is_kept_is_bounded() -> None:
    assert len(positions(compacted(*(at(number) for number in range(10, 1000, EVERY))))) == SLOTS


def test_a_large_one_takes_several_records_and_each_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "PIECE_BYTES", 20)
    large = snapshot_of(two_clusters())
    values = list(compacted(large))
    assert len(values) > 3
    [found] = found_in(reversed(values))
    assert read(found) == large
    for missing in range(len(values)):
        assert not found_in(value for number, value in enumerate(values) if number != missing)


def test_what_a_larger_one_left_behind_goes_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "PIECE_BYTES", 20)
    log = two_clusters()
    large, small = snapshot_of(log), at(4)
    assert [read(found) for found in found_in(compacted(large, small))] == [small]


def test_one_that_does_not_fit_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "PIECE_BYTES", 1)
    with pytest.raises(SnapshotError, match="more than 64 records of 1 can hold"):
        records_of(snapshot_of(two_clusters()), EVERY)


def test_damage_is_noticed() -> None:
    [value] = compacted(at(10))
    piece = snapshots.SnapshotPiece.FromString(value)
    piece.data = piece.data[:-1] + b"!"
    [found] = found_in([piece.SerializeToString()])
    with pytest.raises(SnapshotError, match="another hash"):
        read(found)


def test_another_format_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list(compacted(at(10)))
    known = form.FORMAT
    monkeypatch.setattr(form, "FORMAT", known + 1)
    [found] = found_in(values)
    with pytest.raises(SnapshotError, match=f"it has format {known}, and this router knows format {known + 1}"):
        read(found)


def test_a_position_that_is_not_its_own_is_noticed() -> None:
    [value] = compacted(at(10))
    piece = snapshots.SnapshotPiece.FromString(value)
    piece.position = 99
    [found] = found_in([piece.SerializeToString()])
    with pytest.raises(SnapshotError, match="it is of position 10 and says 99"):
        read(found)


def test_records_of_others_are_passed_over() -> None:
    assert found_in([b"", b"\xff\xff", b"hello"]) == []
    assert found_in([None]) == []
