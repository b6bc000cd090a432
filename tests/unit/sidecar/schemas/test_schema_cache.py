"""The cache of look-ups: one for all who ask, kept for as long as it holds, failures for a moment."""

import threading
from collections.abc import Callable

import pytest

from services.sidecar.schemas.cache import Outcome, SingleFlightCache

WITHIN_SECONDS = 30.0


class NotNowError(Exception):
    """Nobody can be asked."""


class World:
    """A cache, its clock, and what it was asked to look up."""

    def __init__(self, capacity: int = 3, patience: float = WITHIN_SECONDS) -> None:
        self.now = 0.0
        self.outcomes: list[Outcome] = []
        self.looked_up = 0
        self.cache: SingleFlightCache[str, str] = SingleFlightCache(
            capacity,
            failure_seconds=1,
            patience_seconds=patience,
            passing=(NotNowError,),
            on_outcome=lambda key, outcome: self.outcomes.append(outcome),
            clock=lambda: self.now,
        )

    def get(self, key: str, answer: "str | Exception" = "found", seconds: float = float("inf")) -> str:
        return self.cache.get(key, self.answering(answer), seconds)

    def answering(self, answer: str | Exception) -> Callable[[], str]:
        def look_up() -> str:
            self.looked_up += 1
            if isinstance(answer, Exception):
                raise answer
            return answer

        return look_up


def test_what_was_looked_up_once_is_kept() -> None:
    world = World()
    assert [world.get("a", "1"), world.get("a", "2"), world.cache.known("a")] == ["1", "1", "1"]
    assert world.outcomes == [Outcome.MISS, Outcome.HIT, Outcome.HIT]


def test_nobody_is_asked_for_what_is_only_wanted_if_known() -> None:
    world = World()
    assert (world.cache.known("a"), world.looked_up) == (None, 0)


def test_a_value_with_a_time_is_looked_up_again_when_that_is_over() -> None:
    world = World()
    world.get("latest", "1", seconds=300)
    world.now = 299.9
    assert world.get("latest", "2", seconds=300) == "1"
    world.now = 300
    assert world.cache.known("latest") is None
    assert world.get("latest", "2", seconds=300) == "2"


def test_a_failure_is_remembered_for_a_moment() -> None:
    world = World()
    for _ in range(3):
        with pytest.raises(KeyError):
            world.get("a", KeyError("no such"))
    assert world.looked_up == 1
    world.now = 1
    assert world.get("a") == "found"


def test_an_old_value_is_better_than_nobody_to_ask() -> None:
    world = World()
    world.get("latest", "old", seconds=300)
    world.now = 300
    assert world.get("latest", NotNowError(), seconds=300) == "old"
    assert world.outcomes[-1] is Outcome.STALE
    assert world.get("latest", "new", seconds=300) == "old"  # not asked again for a moment
    world.now = 301
    assert world.get("latest", "new", seconds=300) == "new"


def test_an_old_value_is_no_better_than_the_word_that_there_is_none() -> None:
    world = World()
    world.get("latest", "old", seconds=300)
    world.now = 300
    with pytest.raises(KeyError):
        world.get("latest", KeyError("deleted"), seconds=300)


def test_what_was_asked_for_longest_ago_leaves_first() -> None:
    world = World(capacity=2)
    world.get("a")
    world.get("b")
    world.get("a")
    world.get("c")
    assert (world.cache.known("a"), world.cache.known("b"), len(world.cache)) == ("found", None, 2)


def test_what_was_found_by_another_way_is_kept_too_unless_there_is_something() -> None:
    world = World()
    assert (world.cache.keep("a", "1"), world.cache.keep("a", "2"), world.get("a", "3")) == ("1", "1", "1")


def test_what_is_forgotten_is_looked_up_again() -> None:
    world = World()
    world.get("latest", "1")
    world.cache.forget("latest")
    assert world.get("latest", "2") == "2"


@pytest.mark.parametrize("fails", [False, True])
def test_many_who_ask_at_once_share_one_look_up(fails: bool) -> None:
    world = World()
    began, may_end = threading.Event(), threading.Event()
    answers: list[str] = []

    def look_up() -> str:
        world.looked_up += 1
        began.set()
        assert may_end.wait(WITHIN_SECONDS)
        if fails:
            raise KeyError("no such")
        return "found"

    def ask() -> None:
        try:
            answers.append(world.cache.get("a", look_up))
        except KeyError:
            answers.append("failed")

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert began.wait(WITHIN_SECONDS)
    may_end.set()
    for thread in threads:
        thread.join(WITHIN_SECONDS)
    assert answers == ["failed" if fails else "found"] * 5
    assert world.looked_up == 1


def test_who_waits_for_another_does_not_wait_for_ever() -> None:
    world = World(patience=0)
    began, may_end = threading.Event(), threading.Event()

    def look_up() -> str:
        began.set()
        assert may_end.wait(WITHIN_SECONDS)
        return "found"

    first = threading.Thread(target=lambda: world.cache.get("a", look_up))
    first.start()
    try:
        assert began.wait(WITHIN_SECONDS)
        with pytest.raises(TimeoutError):
            world.get("a")
    finally:
        may_end.set()
        first.join(WITHIN_SECONDS)


def test_what_is_cleared_is_looked_up_again() -> None:
    world = World()
    assert world.get("a", "old") == world.get("a", "new") == "old"
    world.cache.clear()
    assert world.get("a", "new") == "new"
