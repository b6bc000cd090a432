"""The findings of a checker, and its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from judge.history import History


@dataclass(frozen=True, slots=True)
class Anomaly:
    key: str
    """Identifies a finding among all findings of its rule. The key stays the same while a history is shrunk."""
    text: str
    operations: tuple[int, ...]
    """Indices of the operations that show it."""
    allowed: bool = False
    """Kafka does not promise its absence here."""
    rule: str = ""
    why: str = ""
    """The reason for which the anomaly is allowed here, where the rule itself does not allow it."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    check: Callable[[History], Iterator[Anomaly]]
    allowed: bool = False
    """Kafka never promises its absence."""

    def found(self, history: History) -> Iterator[Anomaly]:
        for anomaly in self.check(history):
            yield replace(anomaly, rule=self.name, allowed=anomaly.allowed or self.allowed)

    @property
    def says(self) -> str:
        return (self.check.__doc__ or "").strip().splitlines()[0]
