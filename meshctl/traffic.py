"""How traffic is said: figures in cells, growth and freshness in sentences. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from mesh import durations
from mesh.rpc import traffic
from meshctl.output import moment

DIMENSIONS = ("client", "principal", "topic", "rule", "cluster", "api", "reporter")
UNITS = ("B", "kB", "MB", "GB", "TB")
BEHIND = timedelta(minutes=5)
"""The command reports tables that are further behind, because missing traffic may still come."""


class Dimensions(click.ParamType):
    """`--by`: "client,topic"."""

    name = "dimensions"

    def convert(self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        named = [each.strip() for each in value.split(",")]
        for each in named:
            if each not in DIMENSIONS:
                self.fail(f"{each!r} is none of {', '.join(DIMENSIONS)}", param, ctx)
        return list(dict.fromkeys(named))


def cells(figures: traffic.TrafficFigures) -> tuple[str, ...]:
    """Bytes, records, calls, errors, and the latencies; "-" where there are none."""
    latencies = (
        _milliseconds(durations.in_ms(getattr(figures, name))) if figures.HasField(name) else "-"
        for name in ("p50", "p90", "p99", "max")
    )
    numbers = (f"{each:,}" for each in (figures.records, figures.calls, figures.errors))
    return size(figures.bytes), *numbers, *latencies


def _milliseconds(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def size(count: float) -> str:
    """ "1.23 MB": units of 1000, as rates of networks and prices of clouds have them."""
    for unit in UNITS[:-1]:
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:.3g} {UNITS[-1]}"


def growth(share: float) -> str:
    """From the first half of the time to the second."""
    percent = f"{abs(share):.1%}"
    if round(share, 3) == 0:
        return "As many bytes in the second half of this time as in the first."
    return f"{percent} {'more' if share > 0 else 'fewer'} bytes in the second half of this time than in the first."


def freshness(said: traffic.TrafficFreshness, now: datetime) -> str:
    """The problem of the tables; empty when there is none."""
    complete = f"; traffic until {moment(said.complete_until)} is there" if said.HasField("complete_until") else ""
    if said.problem:
        return f"{said.problem}{complete}"
    if said.HasField("complete_until") and now - said.complete_until.ToDatetime(UTC) > BEHIND:
        return f"the pipeline is behind{complete}"
    return ""
