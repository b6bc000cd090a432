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
    """Returns when the disturbed part works again, as far as the judge can see that."""
    longest_s: float = 8.0
    """From begin to end."""
    parts: frozenset[str] = frozenset()
    """The parts that the fault disturbs. Two faults of one part never overlap."""
    weight: float = 1.0
    """The relative frequency of the fault."""


def of_cables(cables: Cables) -> list[Fault]:
    """The faults of the judge's own clients, for any endpoint."""
    return _of_link("links of the judge's own clients", cables.become)


def of_link(name: str, *cables: Cable) -> list[Fault]:
    """The faults of a link of a system; a link may be of several cables."""

    def become(state: State) -> None:
        for cable in cables:
            cable.become(state)

    return _of_link(f"link {name}", become)


def _of_link(name: str, become: Callable[[State], None]) -> list[Fault]:
    def fault(state: State) -> Fault:
        return Fault(f"{name} {state}", lambda: become(state), lambda: become(State.WHOLE), parts=frozenset({name}))

    return [fault(state) for state in State if state is not State.WHOLE]
