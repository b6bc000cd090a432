"""Which events count for a router that trusts signatures: control's, and what they vouch for."""

from __future__ import annotations

from pathlib import Path

import pytest

from local.certificates import write_certificates
from local.owners import parse_owner
from mesh.event_log import CONTROL, ROUTER, Chain, NewerFormatError, signed_event
from mesh.event_log.pieces import PIECE_HEADER
from mesh.member_keys import MemberKeys
from mesh.rpc import events
from mesh.rpc.tls import RpcTls
from services.router.agents import vouching
from services.router.agents.ledger import Ledger
from services.router.agents.snapshots import Snapshot, SnapshotError, found_in, read, records_of
from services.router.agents.vouching import UnsignedLogError
from tests.unit.router.decisions import DecisionLog, two_clusters


@pytest.fixture
def control(tmp_path: Path) -> MemberKeys:
    return member(tmp_path, "control/c1@localhost")


@pytest.fixture
def router(tmp_path: Path) -> MemberKeys:
    return member(tmp_path, "router/r1@localhost")


def member(folder: Path, owner: str) -> MemberKeys:
    known = parse_owner(owner)
    write_certificates(folder, [known])
    return MemberKeys(RpcTls(folder / known.folder))


def written(log: DecisionLog, control: MemberKeys | None, chain: Chain | None = None) -> tuple[list[bytes], Chain]:
    """The events beyond `chain`, as control writes them, and the chain after them."""
    end, bodies = chain or Chain(), []
    for event in log.events[end.position :]:
        event.previous_hash = end.hash
        bodies.append(signed_event(event, control, end.key_id))
        end = end.after(event, bodies[-1])
    return bodies, end


def ledger_of(router: MemberKeys, bodies: list[bytes], begun: Snapshot | None = None) -> Ledger:
    ledger = Ledger(begun, router.signatures(CONTROL, begun.shown if begun else ()))
    for offset, body in enumerate(bodies, 0 if begun is None else begun.offset + 1):
        ledger.fold(body, offset)
    return ledger


def waiting(ledger: Ledger) -> int:
    assert ledger.vouching is not None
    return ledger.vouching.waiting


def test_a_signed_log_is_folded_event_by_event(control: MemberKeys, router: MemberKeys) -> None:
    log = two_clusters()
    ledger = ledger_of(router, written(log, control)[0])
    assert (ledger.state, waiting(ledger)) == (log.state, 0)


def test_a_forged_event_moves_nothing_and_holds_up_nothing(control: MemberKeys, router: MemberKeys) -> None:
    log, forged = two_clusters(), two_clusters()
    bodies, end = written(log, control)
    forged.events = list(log.events)
    forged.rule("bananas", to="c1")
    ledger = ledger_of(router, [*bodies, *written(forged, None, end)[0]])
    assert (ledger.position, waiting(ledger)) == (3, 1)
    log.rule("bananas", to="c2")
    ledger.fold(written(log, control, end)[0][0], 4)
    assert (ledger.state, waiting(ledger)) == (log.state, 0)


def test_forged_events_in_a_row_do_not_count_when_control_goes_on(control: MemberKeys, router: MemberKeys) -> None:
    log, forged = two_clusters(), two_clusters()
    bodies, end = written(log, control)
    forged.events = list(log.events)
    for topic in ("bananas", "cherries", "dates"):
        forged.rule(topic, to="c1")
    log.rule("elderberries", to="c2")
    log.rule("figs", to="c2")
    genuine, _ = written(log, control, end)
    ledger = ledger_of(router, [*bodies, *written(forged, None, end)[0], *genuine])
    assert (ledger.state, waiting(ledger)) == (log.state, 0)


def test_records_that_are_no_event_of_control_are_refused_and_hold_up_nothing(
    control: MemberKeys, router: MemberKeys
) -> None:
    log = two_clusters()
    bodies, end = written(log, control)
    ledger = ledger_of(router, bodies)
    aborted = events.RolloutAborted(revision=3)
    far = events.Event(position=99, actor="mallory", rollout_aborted=aborted)
    newer = events.Event(position=4, format=99)
    another = events.Event(position=4, previous_hash=b"another log", rollout_aborted=aborted)
    forged: tuple[tuple[bytes, list[tuple[str, str | bytes | None]], str], ...] = (
        (b"\xff\xff", [], "it is no event"),
        (b"x", [(PIECE_HEADER, b"4/0/nonsense")], "header mesh-piece"),
        (far.SerializeToString(), [], "event 99 does not continue the log, and it has no signature"),
        (newer.SerializeToString(), [], "it has no signature"),
        (another.SerializeToString(), [], "event 4 does not continue the log"),
    )
    assert ledger.vouching is not None
    for offset, (value, headers, reason) in enumerate(forged, 3):
        assert ledger.fold(value, offset, headers) is None
        assert (ledger.vouching.refused.records, ledger.vouching.refused.offset) == (offset - 2, offset)
        assert reason in ledger.vouching.refused.reason
    assert (ledger.state, waiting(ledger), ledger.next_offset) == (log.state, 0, 8)
    log.rule("bananas", to="c2")
    ledger.fold(written(log, control, end)[0][0], 8)
    assert ledger.state == log.state


def test_a_signed_event_of_a_later_release_ends_the_reading(control: MemberKeys, router: MemberKeys) -> None:
    log = two_clusters()
    log.last.format = 99
    with pytest.raises(NewerFormatError, match="event 3 has format 99"):
        ledger_of(router, written(log, control)[0])


def test_a_log_of_an_older_release_counts_from_its_first_signature_on(control: MemberKeys, router: MemberKeys) -> None:
    log = two_clusters()
    unsigned, end = written(log, None)
    ledger = ledger_of(router, unsigned)
    assert (ledger.position, waiting(ledger)) == (0, 3)
    assert ledger.vouching is not None
    assert not ledger.vouching.has_begun
    log.rule("bananas", to="c2")
    folded = ledger.fold(written(log, control, end)[0][0], 3)
    assert folded is not None
    assert folded.moves
    assert (ledger.state, waiting(ledger)) == (log.state, 0)


def test_a_signature_vouches_for_no_event_that_was_changed(control: MemberKeys, router: MemberKeys) -> None:
    log = two_clusters()
    unsigned, end = written(log, None)
    log.rule("bananas", to="c2")
    bodies = [*unsigned[:2], unsigned[2].replace(b"apples", b"orange"), *written(log, control, end)[0]]
    with pytest.raises(UnsignedLogError, match="event 4 is signed by control, and does not continue the log"):
        ledger_of(router, bodies)


def test_of_two_events_at_one_place_that_one_counts_which_control_vouches_for(
    control: MemberKeys, router: MemberKeys
) -> None:
    log = two_clusters()
    unsigned, end = written(log, None)
    log.rule("bananas", to="c2")
    forged = unsigned[2].replace(b"apples", b"orange")
    ledger = ledger_of(router, [*unsigned[:2], forged, unsigned[2], *written(log, control, end)[0]])
    assert ledger.state == log.state


def test_events_that_wait_have_a_bound(
    control: MemberKeys, router: MemberKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vouching, "MOST_WAITING", 2)
    with pytest.raises(UnsignedLogError, match=r"3 events .* wait for a signature"):
        ledger_of(router, written(two_clusters(), None)[0])


def test_a_reading_goes_on_behind_a_snapshot(control: MemberKeys, router: MemberKeys) -> None:
    log = two_clusters()
    bodies, end = written(log, control)
    snapshot = ledger_of(router, bodies).snapshot("members/r1")
    assert snapshot is not None
    [found] = found_in(value for _, value in records_of(snapshot, 10, router))
    log.rule("bananas", to="c2")
    begun = read(found, router.signatures(ROUTER))
    assert ledger_of(router, written(log, control, end)[0], begun).state == log.state


def test_a_snapshot_counts_only_as_a_router_signed_it(control: MemberKeys, router: MemberKeys) -> None:
    snapshot = ledger_of(router, written(two_clusters(), control)[0]).snapshot("members/r1")
    assert snapshot is not None
    for keys, reason in ((None, "no event before it shows its certificate"), (control, "is not of router")):
        [found] = found_in(value for _, value in records_of(snapshot, 10, keys))
        with pytest.raises(SnapshotError, match=f"no router that is trusted here has signed it: .*{reason}"):
            read(found, router.signatures(ROUTER))
    [found] = found_in(value for _, value in records_of(snapshot, 10, router))
    found.pieces[0].offset = 9
    with pytest.raises(SnapshotError, match="not those that were signed"):
        read(found, router.signatures(ROUTER))
