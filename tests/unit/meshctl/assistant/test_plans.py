"""Tokens of plans: one plan each, once, for some minutes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from meshctl.assistant.plans import LIFETIME_S, MOST, PlanError, Plans


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plans(clock: Clock) -> Plans[str]:
    return Plans(clock)


def test_a_token_stands_for_its_own_plan(plans: Plans[str]) -> None:
    apples, pears = plans.add("apples"), plans.add("pears")
    assert apples != pears
    assert plans.take(pears) == "pears"
    assert plans.take(apples) == "apples"


def test_the_same_plan_twice_has_two_tokens(plans: Plans[str]) -> None:
    assert plans.add("apples") != plans.add("apples")


def test_a_token_counts_once(plans: Plans[str]) -> None:
    token = plans.add("apples")
    plans.take(token)
    with pytest.raises(PlanError, match="counts once"):
        plans.take(token)


def test_a_token_counts_once_among_threads(plans: Plans[str]) -> None:
    token = plans.add("apples")

    def took(_: int) -> bool:
        try:
            return plans.take(token) == "apples"
        except PlanError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(took, range(64))) == 1


@pytest.mark.parametrize(("later", "counts"), [(LIFETIME_S - 0.1, True), (LIFETIME_S, False)])
def test_a_token_ends_after_some_minutes(plans: Plans[str], clock: Clock, later: float, counts: bool) -> None:
    token = plans.add("apples")
    clock.now += later
    if counts:
        assert plans.take(token) == "apples"
    else:
        with pytest.raises(PlanError, match="make the plan again"):
            plans.take(token)
        assert len(plans) == 0, "an old plan takes no place"


@pytest.mark.parametrize("token", ["", "apples", "0" * 22])
def test_nobody_invents_a_token(plans: Plans[str], token: str) -> None:
    plans.add("apples")
    with pytest.raises(PlanError):
        plans.take(token)


def test_a_plan_too_many_pushes_out_the_oldest(plans: Plans[str]) -> None:
    first, *others = [plans.add(str(number)) for number in range(MOST + 1)]
    assert len(plans) == MOST
    with pytest.raises(PlanError):
        plans.take(first)
    assert [plans.take(each) for each in others] == [str(number) for number in range(1, MOST + 1)]
