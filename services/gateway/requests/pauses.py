"""Long work of a plan in steps, between which the event loop serves others."""

from collections.abc import Generator
from typing import Any, Final, TypeVar

from services.gateway.requests.plan import Command, Gather

T = TypeVar("T")
TOPICS_IN_A_STEP: Final = 200
"""Topics of an answer that are shown within two milliseconds."""
PAUSE: Final = Gather((), lambda _: False, 0.0)
"""The plan goes on after the loop has served others."""


def with_pauses(steps: Generator[None, None, T]) -> Generator[Command, Any, T]:
    """The outcome of all steps, with a pause between two of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        yield PAUSE


def few_at_a_time(topics: list[T]) -> Generator[list[T], None, None]:
    """Some of the topics after others, from the end of the list: there they end, because to free all at once takes
    long, too."""
    while topics:
        some = topics[-TOPICS_IN_A_STEP:]
        del topics[-TOPICS_IN_A_STEP:]
        yield some
