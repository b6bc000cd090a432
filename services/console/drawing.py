"""Where the boxes and arrows of a graph stand, so that most arrows go from left to right. No I/O.

Theory of operation
1. The column of a node is its distance from the start: behind it to the right, before it to the left. A node that both
   ways reach stands where the first way found it.
2. Within a column, a node stands beside its neighbours that have a place already: so arrows cross seldom.
3. A column has at most MOST_IN_COLUMN nodes, and there are at most MOST_COLUMNS. The table has what does not fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

N = TypeVar("N", bound=Hashable)

BOX_WIDTH, BOX_HEIGHT = 200, 46
GAP_X, GAP_Y, EDGE = 64, 16, 12
MOST_IN_COLUMN: Final = 12
MOST_COLUMNS: Final = 15


@dataclass(frozen=True, slots=True)
class Drawing(Generic[N]):
    """The corner of each node that fits, and the size of all."""

    places: Mapping[N, tuple[int, int]]
    left_out: int
    width: int
    height: int


def drawn(start: N, edges: Sequence[tuple[N, N]]) -> Drawing[N]:
    """The drawing of a graph around its start."""
    columns = _columns(start, edges)
    neighbours: dict[N, list[N]] = {}
    for source, target in edges:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    places: dict[N, float] = {}
    kept: dict[int, list[N]] = {}
    for column in sorted({*columns.values()}, key=lambda each: (abs(each), each))[:MOST_COLUMNS]:
        nodes = [node for node, where in columns.items() if where == column]
        nodes.sort(key=lambda node: _beside(node, neighbours, places))
        kept[column] = nodes[:MOST_IN_COLUMN]
        middle = (len(kept[column]) - 1) / 2
        places.update((node, number - middle) for number, node in enumerate(kept[column]))
    rows = max(map(len, kept.values()))
    first = min(kept)
    height = 2 * EDGE + rows * BOX_HEIGHT + (rows - 1) * GAP_Y
    corners = {
        node: (
            EDGE + (column - first) * (BOX_WIDTH + GAP_X),
            round((height - BOX_HEIGHT) / 2 + places[node] * (BOX_HEIGHT + GAP_Y)),
        )
        for column, nodes in kept.items()
        for node in nodes
    }
    number = max(kept) - first + 1
    width = 2 * EDGE + number * BOX_WIDTH + (number - 1) * GAP_X
    return Drawing(corners, len(columns) - len(corners), width, height)


def line(source: tuple[int, int], target: tuple[int, int]) -> str:
    """The way of an arrow, as SVG writes it: from the right side of a box to the left side of another one."""
    x, y = source[0] + BOX_WIDTH, source[1] + BOX_HEIGHT // 2
    to_x, to_y = target[0], target[1] + BOX_HEIGHT // 2
    bend = GAP_X // 2 if to_x > x else GAP_X
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"


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


def _beside(node: N, neighbours: Mapping[N, Sequence[N]], places: Mapping[N, float]) -> float:
    known = [places[each] for each in neighbours.get(node, ()) if each in places]
    return sum(known) / len(known) if known else 0.0
