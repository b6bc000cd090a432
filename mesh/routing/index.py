"""Finding, among thousands of rules, those that match a name, and those that lead to one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from mesh.routing.rules import ExactName, ForwardingRule, Match, NameRegex, RuleVersion

Item = TypeVar("Item")


def match_of(version: RuleVersion) -> Match:
    return version.rule.match


class Index(Generic[Item]):
    """Items by their match: by exact name, by the beginning of names, and by other text in names."""

    __slots__ = ("_by_core", "_by_head", "_core_lengths", "_exact", "_lengths", "_match_of")

    def __init__(self, items: Iterable[Item], match_of: Callable[[Item], Match]) -> None:
        self._match_of = match_of
        self._exact: dict[str, list[Item]] = {}
        self._by_head: dict[str, list[Item]] = {}
        self._lengths: list[int] = []
        self._by_core: dict[str, list[Item]] = {}
        """Expressions that say more in plain text further on than at their start."""
        self._core_lengths: list[int] = []
        for item in items:
            self.add(item)

    def add(self, item: Item) -> None:
        by_text, text = self._place_of(self._match_of(item))
        same = by_text.get(text)
        if same is None:
            same = by_text[text] = []
        same.append(item)
        if len(same) > 1 or by_text is self._exact:
            return
        lengths = self._lengths if by_text is self._by_head else self._core_lengths
        if len(text) not in lengths:
            insort(lengths, len(text))

    def changed(self, gone: Iterable[Item], come: Iterable[Item]) -> Index[Item]:
        """The index without the items that go, which are here, and with those that come. A copy shares all lists."""
        after: Index[Item] = Index((), self._match_of)
        after._exact, after._by_head, after._by_core = self._exact.copy(), self._by_head.copy(), self._by_core.copy()
        after._lengths, after._core_lengths = self._lengths.copy(), self._core_lengths.copy()
        for item in gone:
            by_text, text = after._place_of(self._match_of(item))
            by_text[text] = [each for each in by_text[text] if each is not item]
            if not by_text[text]:
                del by_text[text]
        for item in come:
            by_text, text = after._place_of(self._match_of(item))
            by_text[text] = [*by_text.get(text, ())]
            after.add(item)
        return after

    def discard(self, item: Item) -> None:
        by_text, text = self._place_of(self._match_of(item))
        by_text[text].remove(item)
        if not by_text[text]:
            del by_text[text]

    def about(self, match: Match) -> list[Item]:
        """All of exactly this match."""
        by_text, text = self._place_of(match)
        return [item for item in by_text.get(text, ()) if self._match_of(item) == match]

    def matching(self, name: str) -> list[Item]:
        """All that match the name."""
        found = list(self._exact.get(name, ()))
        for length in self._lengths:
            if length > len(name):
                break
            found.extend(self._those(self._by_head.get(name[:length], ()), name))
        for length in self._core_lengths:
            for core in {name[start : start + length] for start in range(len(name) - length + 1)}:
                found.extend(self._those(self._by_core.get(core, ()), name))
        return found

    def _those(self, items: Iterable[Item], name: str) -> Iterator[Item]:
        return (item for item in items if self._match_of(item).matches(name))

    def _place_of(self, match: Match) -> tuple[dict[str, list[Item]], str]:
        if isinstance(match, ExactName):
            return self._exact, match.text
        if isinstance(match, NameRegex) and len(match.core) > len(match.head):
            return self._by_core, match.core
        return self._by_head, match.head


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
