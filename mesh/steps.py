"""Long work on an event loop, in steps between which the loop serves others."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def done_between(steps: Generator[None, None, T]) -> T:
    """The outcome of all steps. After each step, the loop handles all that has come meanwhile."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        await asyncio.sleep(0)
