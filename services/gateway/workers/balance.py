"""Chooses the worker for the next connection. No I/O.

A worker's load is its part of all connections, plus the part of a core that it has used lately beyond a trifle. A
choice by connections alone would fail: nearly every client opens an idle connection before its busy connection, so
that with two workers one of them would get all idle connections. A choice by work alone would fail, too: the work of a
new connection shows a second later.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BEHIND = 32
"""From so many connections that a worker has not taken yet, its loop stands still. It gets more only if all do."""
TRIFLE = 0.1
"""Part of a core: an idle worker that collects garbage or is scraped still counts as idle."""

Choose = Callable[[Sequence["Load"]], "Load"]


@dataclass(slots=True, eq=False)
class Load:
    """The load of one worker, as far as the supervisor knows."""

    worker: int
    handed: int = 0
    """Connections that the supervisor has given to the worker."""
    taken: int = 0
    """Connections among these that the worker has reported as taken."""
    open: int = 0
    """Taken connections that the worker has reported as open."""
    busy: float = 0.0
    """Part of a core that the worker uses."""

    @property
    def waiting(self) -> int:
        return self.handed - self.taken

    @property
    def connections(self) -> int:
        return self.open + self.waiting


def by_load(loads: Sequence[Load], choose: Choose = random.choice) -> list[Load]:
    """The worker for the next connection first, then the others in order of preference. `choose` decides among equals:
    otherwise the same worker would always get every client's first connection.
    """
    total = max(1, sum(load.connections for load in loads))

    def weight(load: Load) -> tuple[bool, float]:
        return load.waiting > BEHIND, load.connections / total + max(0.0, min(load.busy, 1.0) - TRIFLE)

    order = sorted(loads, key=weight)
    equals = [load for load in order if weight(load) == weight(order[0])]
    if len(equals) > 1:
        first = choose(equals)
        order.remove(first)
        order.insert(0, first)
    return order
