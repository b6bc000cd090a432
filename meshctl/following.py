"""Follows what control carries out for a while: a move, or a drain of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def followed(found: T, ask: Callable[[], T], has_ended: Callable[[T], bool], every_s: float) -> Iterator[T]:
    """The state after each change, to its end. `found`: the state now; `ask` asks control for it again."""
    while True:
        yield found
        before = found
        while found == before:
            if has_ended(found):
                return
            time.sleep(every_s)
            found = ask()
