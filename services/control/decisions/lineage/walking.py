"""Walks through the stored lineage, step by step, within a bound on edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.control.domain.lineage.edges import Node
from services.control.domain.lineage.memory import Seen
from services.control.domain.lineage.ways import Direction, Walk
from services.control.store.journal import Journal
from services.control.store.lineage import LineageTables


@dataclass(frozen=True, slots=True)
class Walked:
    """The edges by distance; those beyond the bound are missing."""

    edges: Sequence[tuple[int, Seen]]
    truncated: bool
    hidden: int


async def walked(
    journal: Journal,
    tables: LineageTables,
    start: Node,
    directions: Sequence[Direction],
    sees: Callable[[Node], bool],
    depth: int,
    most_edges: int,
) -> Walked:
    """All that is before or behind a node."""
    table = journal.view.state.effective
    walks = [Walk(start, direction, table, sees) for direction in directions]
    truncated = False
    for walk in walks:
        read = tables.out_of if walk.direction is Direction.DOWNSTREAM else tables.into
        for _ in range(depth):
            if not walk.frontier:
                break
            room = max(0, most_edges - len(walk.found))
            found = await read(walk.wanted(), room + 1)
            truncated = truncated or len(found) > room
            walk.take(found[:room])
    known = {key: each for walk in walks for key, each in walk.found.items()}
    edges = sorted(known.values(), key=lambda each: (each[0], each[1].edge))
    truncated = truncated or len(edges) > most_edges
    return Walked(edges[:most_edges], truncated, len({node for walk in walks for node in walk.hidden}))
