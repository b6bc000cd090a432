"""The ledger of a load run: lost and duplicated records."""

from __future__ import annotations

from local.load_run import Ledger


def test_acknowledged_records_that_nobody_received_are_missing() -> None:
    ledger = Ledger(4)
    for sequence in (0, 1, 3):
        ledger.acknowledge(sequence)
    ledger.receive(1)
    assert ledger.missing() == 2


def test_a_record_that_failed_but_arrived_is_neither_missing_nor_duplicated() -> None:
    ledger = Ledger(1)
    ledger.receive(0)
    assert (ledger.missing(), ledger.duplicated()) == (0, 0)


def test_every_reception_beyond_the_first_is_a_duplicate() -> None:
    ledger = Ledger(2)
    for _ in range(300):  # more than a byte counts
        ledger.receive(1)
    assert ledger.duplicated() == 254
