"""Finds the rules of a policy that count for a topic: all that match its name, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, Protocol, TypeVar

TOPICS_REMEMBERED: Final = 10_000
"""Topics whose rules are remembered: about 1 MB."""


class TopicRule(Protocol):
    """A rule about the topics of one name or prefix."""

    @property
    def rule_id(self) -> str: ...

    def matches(self, topic: str) -> bool: ...


R = TypeVar("R", bound=TopicRule)


class TopicPolicy(Generic[R]):
    """The rules of the mesh about one subject. They never change."""

    def __init__(self, rules: Iterable[R] = (), revision: int = 0) -> None:
        self.revision = revision
        self.rules: tuple[R, ...] = tuple(sorted(rules, key=lambda rule: rule.rule_id))
        self._known: dict[str, tuple[R, ...]] = {}

    def rules_for(self, topic: str) -> tuple[R, ...]:
        """The rules that count for a topic; empty for nearly all topics."""
        if not self.rules:
            return ()
        found = self._known.get(topic)
        if found is None:
            if len(self._known) >= TOPICS_REMEMBERED:  # clients may name topics without end
                self._known.clear()
            found = self._known[topic] = tuple(rule for rule in self.rules if rule.matches(topic))
        return found
