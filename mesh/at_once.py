"""Long work that is written in steps, done at once: where no event loop has to serve others (`mesh.steps`)."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def done_at_once(steps: Generator[None, None, T]) -> T:
    """The outcome of all steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
