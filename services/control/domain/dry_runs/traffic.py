"""The traffic of topics that a change would move: the load for their new clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.control.domain.dry_runs.findings import Finding, FindingKind, Severity
from services.control.domain.rules.moves import Move

UNITS = ("B", "kB", "MB", "GB")


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """The recent traffic of a topic, of a day at most."""

    records_a_second: float
    bytes_a_second: float
    clients: int
    p99_ms: float | None


def of_traffic(moves: Iterable[Move], traffic: Mapping[str, TopicTraffic]) -> list[Finding]:
    """A finding for each topic that has traffic."""
    return [
        Finding(FindingKind.TRAFFIC, Severity.NOTE, topic, _sentence(topic, traffic[topic]))
        for topic in sorted({move.topic for move in moves} & traffic.keys())
    ]


def _sentence(topic: str, traffic: TopicTraffic) -> str:
    clients = f"{traffic.clients} {'client' if traffic.clients == 1 else 'clients'}"
    p99 = "" if traffic.p99_ms is None else f", p99 {traffic.p99_ms:.3g} ms"
    rates = f"{_number(traffic.records_a_second)} records/s, {_size(traffic.bytes_a_second)}/s"
    return f"topic {topic!r} has had {rates} of {clients}{p99} in the last 24 hours: its new place has to bear them"


def _number(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def _size(count: float) -> str:
    for unit in UNITS[:-1]:
        if count < 1_000:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:.3g} {UNITS[-1]}"
