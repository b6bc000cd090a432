"""Line charts side by side as one SVG: enough to see what grows and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 300, 240  # of one chart
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 34, 40
COLOURS = ("#1f6feb", "#d1570a", "#2a8a3e", "#8250df")


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    """In the order of x."""


def draw(x_label: str, charts: Mapping[str, Sequence[Series]]) -> str:
    """The SVG; all axes begin at 0."""
    parts = [_chart(number * WIDTH, title, x_label, series) for number, (title, series) in enumerate(charts.items())]
    width = WIDTH * len(charts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="11"><rect width="{width}" height="{HEIGHT}" fill="white"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _chart(left: int, title: str, x_label: str, series: Sequence[Series]) -> str:
    points = [point for each in series for point in each.points]
    x_most = max((x for x, _ in points), default=0) or 1
    y_most = max((y for _, y in points), default=0) or 1
    x0, x1, y0, y1 = left + LEFT, left + WIDTH - RIGHT, HEIGHT - BOTTOM, TOP

    def place(x: float, y: float) -> tuple[float, float]:
        return x0 + x / x_most * (x1 - x0), y0 - y / y_most * (y0 - y1)

    middle = (x0 + x1) / 2
    parts = [
        f'<text x="{middle}" y="16" text-anchor="middle" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{x0} {y1}V{y0}H{x1}" fill="none" stroke="#888"/>',
        f'<text x="{x0 - 6}" y="{y1 + 4}" text-anchor="end">{y_most:,.0f}</text>',
        f'<text x="{x0 - 6}" y="{y0 + 4}" text-anchor="end">0</text>',
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>',
    ]
    for x in sorted({x for x, _ in points}):
        at, _ = place(x, 0)
        parts.append(f'<text x="{at:.1f}" y="{y0 + 15}" text-anchor="middle">{x:g}</text>')
    for number, each in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(*point) for point in each.points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in placed]
        parts.append(f'<text x="{x0 + 8}" y="{y1 + 12 + 14 * number}" fill="{colour}">{escape(each.name)}</text>')
    return "".join(parts)
