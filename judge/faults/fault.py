"""A fault: it begins, it ends, and it has a name for the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from judge.faults.cable import Cable, Cables, State


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    begin: Callable[[], None]
    end: Callable[[], None]
    """Returns when what was disturbed works again, as far as that can be seen."""
    longest_s: float = 8.0
    """From begin to end."""
    parts: frozenset[str] = frozenset()
    """What it disturbs. Two faults of one part never overlap."""
    weight: float = 1.0
    """How often it is chosen, beside others."""


def of_cables(cables: Cables) -> list[Fault]:
    """What can be done to the judge's own clients at any endpoint."""
    return _of_link("links of the judge's own clients", cables.become)


def of_link(name: str, *cables: Cable) -> list[Fault]:
    """What can be done to a link of a system; it may be of several cables."""

    def become(state: State) -> None:
        for cable in cables:
            cable.become(state)

    return _of_link(f"link {name}", become)


def _of_link(name: str, become: Callable[[State], None]) -> list[Fault]:
    def fault(state: State) -> Fault:
        return Fault(f"{name} {state}", lambda: become(state), lambda: become(State.WHOLE), parts=frozenset({name}))

    return [fault(state) for state in State if state is not State.WHOLE]
