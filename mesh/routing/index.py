"""Finding, among thousands of rules, those that match a name, and those that lead to one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from mesh.routing.rules import ExactName, ForwardingRule, Match, RuleVersion

Item = TypeVar("Item")


def match_of(version: RuleVersion) -> Match:
    return version.rule.match


class Index(Generic[Item]):
    """What has a match, by that: exact names, and how other names begin."""

    __slots__ = ("_by_head", "_exact", "_lengths", "_match_of")

    def __init__(self, items: Iterable[Item], match_of: Callable[[Item], Match]) -> None:
        self._match_of = match_of
        self._exact: dict[str, list[Item]] = {}
        self._by_head: dict[str, list[Item]] = {}
        self._lengths: list[int] = []
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        match = self._match_of(item)
        if isinstance(match, ExactName):
            self._exact.setdefault(match.text, []).append(item)
            return
        same_head = self._by_head.get(match.head)
        if same_head is not None:
            same_head.append(item)
            return
        self._by_head[match.head] = [item]
        if len(match.head) not in self._lengths:
            insort(self._lengths, len(match.head))

    def discard(self, item: Item) -> None:
        match = self._match_of(item)
        by_text = self._exact if isinstance(match, ExactName) else self._by_head
        same = by_text[match.head]
        same.remove(item)
        if not same:
            del by_text[match.head]

    def about(self, match: Match) -> list[Item]:
        """All of exactly this match."""
        by_text = self._exact if isinstance(match, ExactName) else self._by_head
        return [item for item in by_text.get(match.head, ()) if self._match_of(item) == match]

    def matching(self, name: str) -> list[Item]:
        """All that match the name."""
        found = list(self._exact.get(name, ()))
        for length in self._lengths:
            if length > len(name):
                break
            of_this_head = self._by_head.get(name[:length], ())
            found.extend(item for item in of_this_head if self._match_of(item).matches(name))
        return found


class Renames:
    """A cluster's living rules that give topics other names there, by how those names begin."""

    __slots__ = ("_by_head", "_lengths")

    def __init__(self, rules: Iterable[ForwardingRule]) -> None:
        self._by_head: dict[str, list[tuple[int, ForwardingRule]]] = {}
        for order, rule in enumerate(rules):
            self._by_head.setdefault(rule.upstream_head, []).append((order, rule))
        self._lengths = sorted({len(head) for head in self._by_head})

    def leading_to(self, upstream_topic: str) -> Iterator[tuple[ForwardingRule, str]]:
        """Rules with the name that each would call this topic, first rule first."""
        heads = (upstream_topic[:length] for length in self._lengths if length <= len(upstream_topic))
        for _, rule in sorted((each for head in heads for each in self._by_head.get(head, ())), key=itemgetter(0)):
            name = rule.virtual_name(upstream_topic)
            if name is not None:
                yield rule, name
