"""The ledger of what backends are given tells every way in which it can differ from what Kafka has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.fixtures import push_ledger
from tests.fixtures.push_ledger import (
    AMBIGUOUS,
    BY_KEY,
    DISORDER,
    FOREIGN,
    LOST,
    UNEXPLAINED,
    Call,
    Death,
    Move,
    Outage,
    Place,
    Trouble,
    Written,
)

ALICE = [Written("alice", number, Place(0, number)) for number in range(6)]
BOB = [Written("bob", number, Place(1, number)) for number in range(2)]


class Backend:
    """What a backend was given, call by call, a moment for the begin and one for the end of each."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def given(
        self,
        *records: Written,
        life: str = "a-1",
        key: str = "",
        processed: int | None = None,
        told: int | None = None,
        lasts: int = 1,
    ) -> Backend:
        """All is processed, and that is answered, unless it is said; `lasts`: so long after its begin it ended."""
        done = len(records) if processed is None else processed
        key = key or f"{records[0].place}-{records[-1].place.offset}"
        began = 2 * len(self.calls)
        self.calls.append(Call(life, key, records, began, began + lasts, done, done if told is None else told))
        return self


def differences(written: Sequence[Written], backend: Backend, *troubles: Trouble) -> dict[str, list[str]]:
    balance = push_ledger.compare(written, backend.calls, troubles)
    return {difference.what: list(difference.cases) for difference in balance.differences}


def test_batches_of_two_partitions_balance_however_they_mingle() -> None:
    backend = Backend().given(*ALICE[:3]).given(*BOB[:1]).given(*ALICE[3:]).given(*BOB[1:])
    assert differences([*BOB, *ALICE], backend) == {}


def test_a_record_that_was_never_processed_is_named() -> None:
    backend = Backend().given(*ALICE[:2], processed=1)
    assert differences(ALICE[:2], backend) == {LOST: ["alice-1 (0@1)"]}


def test_a_record_that_never_came_is_named() -> None:
    assert differences(ALICE[:2], Backend().given(*ALICE[:1])) == {LOST: ["alice-1 (0@1)"]}


def test_what_kafka_has_not_or_has_otherwise_is_named() -> None:
    other = Written("bob", 0, Place(0, 0))
    backend = Backend().given(ALICE[0]).given(other, key="other").given(Written("eve", 0, Place(7, 7)))
    assert differences(ALICE[:1], backend) == {
        FOREIGN: ["bob-0 (0@0) in call 2 of a-1 under other", "eve-0 (7@7) in call 4 of a-1 under 7@7-7"]
    }


def test_a_record_before_its_turn_is_named() -> None:
    backend = Backend().given(ALICE[1]).given(ALICE[0])
    assert differences(ALICE[:2], backend) == {
        DISORDER: ["alice-1 (0@1) in call 0 of a-1 under 0@1-1, and alice-0 (0@0) has its turn"]
    }


def test_records_in_the_wrong_order_within_a_call_are_named() -> None:
    assert DISORDER in differences(ALICE[:2], Backend().given(ALICE[1], ALICE[0]))


def test_a_record_that_is_sent_while_the_one_before_it_has_failed_is_named() -> None:
    backend = Backend().given(ALICE[0], processed=0).given(ALICE[1]).given(ALICE[0])
    assert differences(ALICE[:2], backend) == {
        DISORDER: ["alice-1 (0@1) in call 2 of a-1 under 0@1-1, before alice-0 (0@0) was processed"]
    }


def test_a_record_that_is_sent_while_the_one_before_it_is_being_processed_is_named() -> None:
    backend = Backend().given(ALICE[0], lasts=9).given(ALICE[1])
    assert differences(ALICE[:2], backend) == {
        DISORDER: ["alice-1 (0@1) in call 2 of a-1 under 0@1-1, before alice-0 (0@0) was processed"]
    }


def test_who_goes_back_leaves_nothing_out_either() -> None:
    died = Death("kill", "a-1", {})
    backend = Backend().given(*ALICE[:3]).given(ALICE[0], life="a-2").given(ALICE[2], life="a-2")
    assert list(differences(ALICE[:3], backend, died)) == [DISORDER]
    backend = Backend().given(*ALICE[:3]).given(*ALICE[:2], life="a-2").given(ALICE[2], life="a-2")
    assert differences(ALICE[:3], backend, died) == {}


def test_a_call_that_failed_comes_again_and_that_is_no_repeat() -> None:
    backend = Backend().given(*ALICE, processed=0).given(*ALICE)
    balance = push_ledger.check(ALICE, backend.calls)
    assert balance.repeats == {}


def test_records_whose_answer_was_lost_come_again_under_their_key() -> None:
    backend = Backend().given(*ALICE, told=0).given(*ALICE)
    balance = push_ledger.check(ALICE, backend.calls)
    assert balance.repeats == {BY_KEY: 6}


def test_records_that_come_again_under_another_key_are_named() -> None:
    backend = Backend().given(*ALICE[:2], told=0).given(*ALICE[:2], key="another")
    assert len(differences(ALICE[:2], backend)[UNEXPLAINED]) == 2


def test_a_key_explains_nothing_to_a_caller_that_knows_that_all_was_done() -> None:
    backend = Backend().given(ALICE[0]).given(ALICE[0])
    assert differences(ALICE[:1], backend) == {
        UNEXPLAINED: ["alice-0 (0@0) in call 2 of a-1 under 0@0-0, after call 0 of a-1 under 0@0-0, which was told so"]
    }


def test_the_rest_of_a_call_comes_again_and_what_was_told_does_not() -> None:
    first = Backend().given(*ALICE[:4], processed=2)
    assert differences(ALICE[:4], first.given(*ALICE[2:4])) == {}
    second = Backend().given(*ALICE[:4], processed=2).given(*ALICE[:4])
    assert len(differences(ALICE[:4], second)[UNEXPLAINED]) == 2


def test_what_a_dead_life_had_not_committed_comes_again_and_nothing_before_it() -> None:
    died = Death("a-1 killed", "a-1", {0: 4})
    backend = Backend().given(*ALICE[:5]).given(*ALICE[4:], life="a-2")
    assert push_ledger.check(ALICE, backend.calls, [died]).repeats == {"a-1 killed": 1}
    backend = Backend().given(*ALICE[:5]).given(*ALICE[3:], life="a-2")
    assert differences(ALICE, backend, died) == {
        UNEXPLAINED: ["alice-3 (0@3) in call 2 of a-2 under 0@3-5, after call 0 of a-1 under 0@0-4, which was told so"]
    }


def test_a_death_explains_nothing_about_another_life() -> None:
    backend = Backend().given(*ALICE, life="b-1").given(*ALICE, life="a-2")
    assert len(differences(ALICE, backend, Death("a-1 killed", "a-1", {}))[UNEXPLAINED]) == 6


def test_at_most_what_was_on_its_way_comes_again_when_a_partition_moves() -> None:
    moved = Move("b-1 joins", "b-1", began=0, ended=2, given={("a-1", 0): 3}, at_most=2)
    backend = Backend().given(*ALICE[:4]).given(*ALICE[2:], life="b-1")
    assert push_ledger.check(ALICE, backend.calls, [moved]).repeats == {"b-1 joins": 2}
    backend = Backend().given(*ALICE[:4]).given(*ALICE[1:], life="b-1")
    assert len(differences(ALICE, backend, moved)[UNEXPLAINED]) == 1


def test_a_move_explains_nothing_before_or_after_it() -> None:
    moved = Move("b-1 joins", "b-1", began=0, ended=0, given={("a-1", 0): 5}, at_most=9)
    backend = Backend().given(*ALICE).given(*ALICE, life="b-1")
    assert len(differences(ALICE, backend, moved)[UNEXPLAINED]) == 6
    moved = Move("b-1 joins", "b-1", began=9, ended=9, given={("a-1", 0): 5}, at_most=9)
    assert len(differences(ALICE, backend, moved)[UNEXPLAINED]) == 6


def test_a_move_explains_nothing_between_lives_that_it_is_not_about() -> None:
    moved = Move("b-1 joins", "b-1", began=0, ended=9, given={("a-1", 0): 5}, at_most=9)
    backend = Backend().given(*ALICE).given(*ALICE, life="a-2")
    assert len(differences(ALICE, backend, moved)[UNEXPLAINED]) == 6


def test_what_could_not_be_committed_during_an_outage_comes_again() -> None:
    away = Outage("broker 2 is away", began=2, ended=9, committed={0: 3})
    backend = Backend().given(*ALICE[:3]).given(*ALICE[3:5]).given(*ALICE[3:])
    assert push_ledger.check(ALICE, backend.calls, [away]).repeats == {"broker 2 is away": 2}
    backend = Backend().given(*ALICE[:3]).given(*ALICE[3:5]).given(*ALICE[2:])
    assert len(differences(ALICE, backend, away)[UNEXPLAINED]) == 1


def test_a_key_that_stands_for_other_records_is_named() -> None:
    backend = Backend().given(*ALICE[:1], key="k").given(*ALICE[1:2], key="k")
    assert differences(ALICE[:2], backend) == {AMBIGUOUS: ["call 2 of a-1 under k"]}


def test_the_check_fails_with_all_that_was_found() -> None:
    backend = Backend().given(ALICE[1]).given(ALICE[1])
    with pytest.raises(AssertionError) as failed:
        push_ledger.check(ALICE[:2], backend.calls)
    assert str(failed.value).splitlines()[:2] == [
        "2 records in 2 calls; came again though processed: none",
        "1 never processed:",
    ]
