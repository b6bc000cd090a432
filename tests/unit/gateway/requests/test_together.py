"""Two pieces of a plan side by side ask in the same round trips."""

from collections.abc import Generator
from typing import Any

from services.gateway.requests.plan import Ask, Call, Command, Refresh
from services.gateway.requests.together import together
from services.gateway.wire.messages import MetadataRequest


def asking(cluster: str, rounds: int, *, preliminary: bool = True) -> Generator[Command, Any, list[str]]:
    """Asks so many times; returns the answers."""
    answers: list[str] = []
    for _ in range(rounds):
        yield Refresh(cluster, ())
        (answer,) = yield Ask((Call(cluster, MetadataRequest(), 8),), preliminary)
        answers.append(answer)
    return answers


def played(plan: Generator[Command, Any, Any]) -> tuple[Any, list[list[str]], list[str]]:
    """The result, the clusters of each round, and those of the other commands."""
    rounds: list[list[str]] = []
    others: list[str] = []
    outcome: Any = None
    while True:
        try:
            command = plan.send(outcome)
        except StopIteration as stop:
            return stop.value, rounds, others
        if isinstance(command, Ask):
            rounds.append([call.cluster for call in command.calls])
            outcome = tuple(f"{call.cluster}-{len(rounds)}" for call in command.calls)
        else:
            assert isinstance(command, Refresh)
            others.append(command.cluster)
            outcome = None


def test_the_longer_one_decides_how_many_round_trips_there_are() -> None:
    result, rounds, others = played(together(asking("c1", 1), asking("c2", 3)))
    assert result == (["c1-1"], ["c2-1", "c2-2", "c2-3"])
    assert rounds == [["c1", "c2"], ["c2"], ["c2"]]
    assert others == ["c1", "c2", "c2", "c2"]


def test_nothing_is_asked_for_pieces_that_ask_nothing() -> None:
    assert played(together(asking("c1", 0), asking("c2", 0))) == (([], []), [], [])


def test_a_round_is_preliminary_only_if_both_are() -> None:
    plan = together(asking("c1", 1), asking("c2", 1, preliminary=False))
    assert next(plan) == Refresh("c1", ())
    assert plan.send(None) == Refresh("c2", ())
    round_ = plan.send(None)
    assert isinstance(round_, Ask)
    assert not round_.preliminary


def test_both_end_when_the_client_goes_away() -> None:
    first, second = asking("c1", 2), asking("c2", 2)
    plan = together(first, second)
    next(plan)
    plan.close()
    assert [next(each, None) for each in (first, second)] == [None, None]
