"""The columns of lineage: nodes stand in them so that most lines go from left to right. No I/O.

Theory of operation
1. The column of a node is its distance from the start: behind it to the right, before it to the left. A node that both
   ways reach stands where the first way found it.
2. Within a column, a node stands beside its neighbours that have a place already: so lines cross seldom.
3. A column has at most MOST_IN_COLUMN nodes, and there are at most MOST_COLUMNS. The table has what does not fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

N = TypeVar("N", bound=Hashable)

MOST_IN_COLUMN: Final = 12
MOST_COLUMNS: Final = 15


def layered(start: N, edges: Sequence[tuple[N, N]]) -> tuple[list[list[N]], int]:
    """The columns of a graph around its start, from left to right, and how many nodes did not fit."""
    columns = _columns(start, edges)
    neighbours: dict[N, list[N]] = {}
    for source, target in edges:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    places: dict[N, int] = {}
    kept: dict[int, list[N]] = {}
    for column in sorted({*columns.values()}, key=lambda each: (abs(each), each))[:MOST_COLUMNS]:
        nodes = [node for node, where in columns.items() if where == column]
        nodes.sort(key=lambda node: _beside(node, neighbours, places))
        kept[column] = nodes[:MOST_IN_COLUMN]
        places.update((node, number) for number, node in enumerate(kept[column]))
    return [kept[column] for column in sorted(kept)], len(columns) - len(places)


def _columns(start: N, edges: Sequence[tuple[N, N]]) -> dict[N, int]:
    found = {start: 0}
    for step, ways in ((1, edges), (-1, [(target, source) for source, target in edges])):
        following: dict[N, list[N]] = {}
        for one, other in ways:
            following.setdefault(one, []).append(other)
        frontier, column = [start], 0
        while frontier:
            column += step
            reached = dict.fromkeys(node for each in frontier for node in following.get(each, ()))
            frontier = [node for node in reached if node not in found]
            found.update(dict.fromkeys(frontier, column))
    return found


def _beside(node: N, neighbours: Mapping[N, Sequence[N]], places: Mapping[N, int]) -> float:
    known = [places[each] for each in neighbours.get(node, ()) if each in places]
    return sum(known) / len(known) if known else 0.0
