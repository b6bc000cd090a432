"""Two pieces of a plan side by side: what both have to ask is sent at the same time, so the longer one decides."""

from collections.abc import Generator
from typing import Any, TypeVar

from services.gateway.requests.plan import Ask, Command

A = TypeVar("A")
B = TypeVar("B")


def together(
    first: Generator[Command, Any, A], second: Generator[Command, Any, B]
) -> Generator[Command, Any, tuple[A, B]]:
    """The results of both. Neither may depend on the other's calls: they may arrive in any order.

    Commands that are no calls are carried out as they come, one after the other.
    """
    try:
        results: tuple[A, B] = yield from _together((first, second))
        return results
    finally:
        first.close()
        second.close()


def _together(plans: tuple[Generator[Command, Any, Any], ...]) -> Generator[Command, Any, Any]:
    results: list[Any] = [None] * len(plans)
    answers: dict[int, Any] = dict.fromkeys(range(len(plans)))
    """By number of an unfinished plan, the value to resume it with."""
    while answers:
        asking: dict[int, Ask] = {}
        for number, answer in answers.items():
            try:
                command = plans[number].send(answer)
                while not isinstance(command, Ask):
                    command = plans[number].send((yield command))
            except StopIteration as end:
                results[number] = end.value
            else:
                asking[number] = command
        answers = {}
        if asking:
            calls = tuple(call for each in asking.values() for call in each.calls)
            outcomes = iter((yield Ask(calls, all(each.preliminary for each in asking.values()))))
            answers = {number: tuple(next(outcomes) for _ in each.calls) for number, each in asking.items()}
    return tuple(results)
