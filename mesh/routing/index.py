"""Finding, among thousands of rules, those that match a name, and those that lead to one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mesh.routing.rules import ExactName, ForwardingRule, Match, NameRegex, RuleVersion

if TYPE_CHECKING:
    from mesh.routing.packed import Form

Item = TypeVar("Item")


def match_of(version: RuleVersion) -> Match:
    return version.rule.match


class Index(Generic[Item]):
    """Items by their match: by exact name, by the beginning of names, and by other text in names."""

    __slots__ = ("_by_core", "_by_head", "_core_lengths", "_exact", "_form", "_lengths", "_match_of")

    def __init__(
        self, items: Iterable[Item], match_of: Callable[[Item], Match], form: Form[Item] | None = None
    ) -> None:
        """`form`: items with an exact name are kept as bytes."""
        self._match_of = match_of
        self._form = form
        self._exact: dict[str, Any] = {}
        """The item, or several as a tuple."""
        self._by_head: dict[str, Any] = {}
        self._lengths: list[int] = []
        self._by_core: dict[str, Any] = {}
        """Expressions that say more in plain text further on than at their start."""
        self._core_lengths: list[int] = []
        for item in items:
            self.add(item)

    def add(self, item: Item, kept: bytes | None = None) -> None:
        """`kept`: the item as bytes, if they are there already."""
        by_text, text = self._place_of(self._match_of(item))
        same = by_text.get(text)
        added = self._kept(by_text, item) if kept is None or by_text is not self._exact else kept
        by_text[text] = added if same is None else (*_all(same), added)
        if same is not None or by_text is self._exact:
            return
        lengths = self._lengths if by_text is self._by_head else self._core_lengths
        if len(text) not in lengths:
            insort(lengths, len(text))

    def changed(self, gone: Iterable[Item], come: Iterable[Item]) -> Index[Item]:
        """The index without the items that go, which are here, and with those that come."""
        after: Index[Item] = Index((), self._match_of, self._form)
        after._exact, after._by_head, after._by_core = self._exact.copy(), self._by_head.copy(), self._by_core.copy()
        after._lengths, after._core_lengths = self._lengths.copy(), self._core_lengths.copy()
        for item in gone:
            after.discard(item)
        for item in come:
            after.add(item)
        return after

    def discard(self, item: Item) -> None:
        by_text, text = self._place_of(self._match_of(item))
        kept = self._kept(by_text, item)
        left = tuple(each for each in _all(by_text[text]) if each != kept)
        if left:
            by_text[text] = left
        else:
            del by_text[text]

    def about(self, match: Match) -> list[Item]:
        """All of exactly this match."""
        return [item for item in self._at(*self._place_of(match)) if self._match_of(item) == match]

    def matching(self, name: str) -> list[Item]:
        """All that match the name."""
        found = self._at(self._exact, name)
        for length in self._lengths:
            if length > len(name):
                break
            found.extend(self._those(self._by_head, name[:length], name))
        for length in self._core_lengths:
            for core in {name[start : start + length] for start in range(len(name) - length + 1)}:
                found.extend(self._those(self._by_core, core, name))
        return found

    def _those(self, by_text: dict[str, Any], text: str, name: str) -> Iterator[Item]:
        return (item for item in self._at(by_text, text) if self._match_of(item).matches(name))

    def _at(self, by_text: dict[str, Any], text: str) -> list[Item]:
        found = _all(by_text.get(text, ()))
        return [*map(self._form.read, found)] if self._form is not None and by_text is self._exact else [*found]

    def _kept(self, by_text: dict[str, Any], item: Item) -> Any:
        return self._form.kept(item) if self._form is not None and by_text is self._exact else item

    def _place_of(self, match: Match) -> tuple[dict[str, Any], str]:
        if isinstance(match, ExactName):
            return self._exact, match.text
        if isinstance(match, NameRegex) and len(match.core) > len(match.head):
            return self._by_core, match.core
        return self._by_head, match.head


def _all(kept: Any) -> tuple[Any, ...]:
    return kept if type(kept) is tuple else (kept,)


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
