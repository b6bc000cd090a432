"""A fault: it begins, it ends, and it has a name for the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from judge.faults.cable import Cables, State


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    begin: Callable[[], None]
    end: Callable[[], None]
    """Returns when what was disturbed works again, as far as that can be seen."""
    longest_s: float = 8.0
    """From begin to end."""


def of_cables(cables: Cables) -> list[Fault]:
    """What can be done to the judge's own clients at any endpoint."""

    def fault(state: State) -> Fault:
        return Fault(f"links {state}", lambda: cables.become(state), lambda: cables.become(State.WHOLE))

    return [fault(state) for state in State if state is not State.WHOLE]
