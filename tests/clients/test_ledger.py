"""The ledger tells every way in which acknowledgements and stored records can disagree."""

from __future__ import annotations

import pytest

from tests.clients import ledger
from tests.clients.ledger import Acked, Stored

ACKED = [Acked("java-0", partition=0, offset=0), Acked("java-1", partition=0, offset=1)]


def differences(stored: list[Stored]) -> dict[str, list[str]]:
    return {difference.what: list(difference.cases) for difference in ledger.compare(ACKED, stored)}


def test_records_that_moved_between_clusters_balance() -> None:
    assert differences([Stored("java-0", "c1", 0, 0), Stored("java-1", "c2", 0, 0)]) == {}


def test_a_lost_record_is_named_with_its_acknowledgement() -> None:
    assert differences([Stored("java-0", "c1", 0, 0)]) == {ledger.LOST: ["java-1, acknowledged as 0@1"]}


def test_a_duplicate_is_named_with_all_its_places() -> None:
    stored = [Stored("java-0", "c1", 0, 0), Stored("java-1", "c1", 0, 1), Stored("java-1", "c2", 0, 0)]
    assert differences(stored) == {ledger.DUPLICATE: ["java-1 at c1/0@1, java-1 at c2/0@0"]}


def test_order_counts_within_a_partition_of_a_cluster() -> None:
    stored = [Stored("java-1", "c1", 0, 0), Stored("java-0", "c1", 0, 1)]
    assert differences(stored) == {ledger.DISORDER: ["java-0 at c1/0@1, after java-1 at c1/0@0"]}
    assert differences([Stored("java-1", "c1", 0, 0), Stored("java-0", "c2", 0, 1)]) == {}


def test_a_record_on_another_partition_is_named() -> None:
    stored = [Stored("java-0", "c1", 0, 0), Stored("java-1", "c1", 2, 0)]
    assert differences(stored) == {ledger.MISPLACED: ["java-1 at c1/2@0, acknowledged as 0@1"]}


def test_a_record_that_nobody_acknowledged_is_a_difference_unless_allowed() -> None:
    stored = [Stored(f"java-{number}", "c1", 0, number) for number in range(3)]
    with pytest.raises(
        AssertionError, match="2 records acknowledged, stored: 3 on c1\n1 stored but never acknowledged"
    ):
        ledger.check(ACKED, stored)
    ledger.check(ACKED, stored, allow_unacknowledged=True)


def test_a_long_list_is_cut() -> None:
    acked = [Acked(f"java-{number}", 0, number) for number in range(100)]
    (lost,) = ledger.compare(acked, [])
    assert str(lost).endswith("    and 90 more")
