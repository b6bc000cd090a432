"""The ledger of a load run: missing and duplicated records."""

from __future__ import annotations

from local.load_run import Ledger, Reception


def test_acknowledged_records_that_nobody_received_are_missing() -> None:
    ledger = Ledger(4)
    for sequence in (0, 1, 3):
        ledger.acknowledge(sequence)
    assert ledger.receive(1, 0, 17) is Reception.FIRST
    assert ledger.missing() == 2


def test_a_record_that_failed_but_arrived_is_neither_missing_nor_duplicated() -> None:
    ledger = Ledger(1)
    ledger.receive(0, 0, 0)
    assert (ledger.missing(), ledger.duplicated) == (0, 0)


def test_a_record_at_two_places_is_a_duplicate() -> None:
    ledger = Ledger(2)
    ledger.receive(1, 2, 40)
    assert ledger.receive(1, 2, 41) is Reception.DUPLICATE
    assert ledger.receive(1, 3, 40) is Reception.DUPLICATE
    assert (ledger.duplicated, ledger.read_again) == (2, 0)


def test_a_record_from_the_same_place_was_read_again() -> None:
    ledger = Ledger(2)
    ledger.receive(1, 2, 40)
    assert ledger.receive(1, 2, 40) is Reception.AGAIN
    assert (ledger.duplicated, ledger.read_again) == (0, 1)
