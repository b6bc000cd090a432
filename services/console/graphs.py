"""Where the boxes and lines of a picture stand: nodes in columns, and edges between columns. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.console.parts import Box, Graph, Line, Text, Tone

BOX_WIDTH, LINE_HEIGHT, PADDING = 208, 18, 8
GAP = 14
"""Between two boxes of a column."""
STEP = 380
"""From one column to the next."""
HEAD = 30
"""The names of the columns."""
TRUNK, TIP = 96, 18
"""The straight ends of a line: the first one carries the labels, if there are any."""
LONGEST = 26
"""Characters of a line in a box: at 14 px the widest letters still fit."""


@dataclass(frozen=True, slots=True)
class Node:
    """A box. `name` is its own in the picture."""

    name: str
    column: int
    title: str
    lines: Sequence[str] = ()
    href: str = ""
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Edge:
    """A line from a node to another one; `text` is what it says when looked at."""

    start: str
    end: str
    text: str = ""
    labels: tuple[str, str] = ("", "")
    """Above and below the line, at its start."""
    tone: Tone = Tone.PLAIN
    dashed: bool = False
    share: float = 0.0
    """From 0 to 1: how thick the line is."""


def drawn(
    title: str, columns: Sequence[str], nodes: Iterable[Node], edges: Iterable[Edge], note: str = "", step: int = STEP
) -> Graph:
    """The picture, with `step` pixels from one column to the next. An edge whose nodes are not there is left out."""
    boxes: dict[str, Box] = {}
    below = [HEAD] * len(columns)
    for node in nodes:
        height = 2 * PADDING + LINE_HEIGHT * (1 + len(node.lines))
        x, y = node.column * step, below[node.column]
        texts = [
            Text(x + PADDING, y + PADDING + LINE_HEIGHT * (place + 1) - 5, shortened(text))
            for place, text in enumerate((node.title, *node.lines))
        ]
        about = " ".join((node.title, *node.lines))
        boxes[node.name] = Box(x, y, BOX_WIDTH, height, identity(node.name), about, texts, node.href, node.tone)
        below[node.column] = y + height + GAP
    lines = [
        _line(boxes[each.start], boxes[each.end], each) for each in edges if {each.start, each.end} <= boxes.keys()
    ]
    heads = [Text(number * step, HEAD - 12, text) for number, text in enumerate(columns)]
    return Graph(title, (len(columns) - 1) * step + BOX_WIDTH, max(below), heads, list(boxes.values()), lines, note)


def _line(start: Box, end: Box, edge: Edge) -> Line:
    x1, y1 = start.x + start.width, start.y + start.height // 2
    x2, y2 = end.x, end.y + end.height // 2
    trunk = TRUNK if any(edge.labels) else TIP
    middle = (x1 + trunk + x2 - TIP) // 2
    path = f"M{x1} {y1}h{trunk}C{middle} {y1} {middle} {y2} {x2 - TIP} {y2}h{TIP}"
    above, below = edge.labels
    labels = [Text(x1 + 4, y, text) for y, text in ((y1 - 5, above), (y1 + 14, below)) if text]
    return Line(path, edge.text, labels, edge.tone, edge.dashed, 1.0 + 4.0 * min(max(edge.share, 0.0), 1.0))


def identity(name: str) -> str:
    """The id of an element: the same on each load, so that the focus stays where it is."""
    return "n-" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]


def shortened(text: str) -> str:
    """The middle is left out: beginnings and ends tell names apart."""
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 1) // 2
    return f"{text[: LONGEST - 1 - half]}…{text[-half:]}"
