"""Which worker gets the next connection. No I/O.

A worker's load is its part of all connections, and the part of a core that it works lately beyond a trifle. Connections
alone would go wrong: nearly every client opens one that stays idle before the one that works, so that with two workers
one would have all idle ones. The work alone would, too: it shows a second later what was given now.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BEHIND = 32
"""Connections that a worker has not taken yet: its loop stands still, and only where all do it is given more."""
TRIFLE = 0.1
"""Of a core: an idle worker that collects garbage or is scraped is idle all the same."""

Choose = Callable[[Sequence["Load"]], "Load"]


@dataclass(slots=True, eq=False)
class Load:
    """Of one worker, as far as the supervisor knows."""

    worker: int
    handed: int = 0
    """Connections that it was given."""
    taken: int = 0
    """Of these, as it has told."""
    open: int = 0
    """Of those that it has taken, as it has told."""
    busy: float = 0.0
    """Part of a core."""

    @property
    def waiting(self) -> int:
        return self.handed - self.taken

    @property
    def connections(self) -> int:
        return self.open + self.waiting


def by_load(loads: Sequence[Load], choose: Choose = random.choice) -> list[Load]:
    """The one that is to have the next connection first, then who may have it instead. `choose` is asked among equals:
    always the same one would have every client's first connection.
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
