"""Finding, among thousands of rules, those that match a name, and those that lead to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter

from mesh.routing.rules import ExactName, ForwardingRule, RuleVersion


class Index:
    """Rule versions by what they match on: exact names, and how other names begin."""

    __slots__ = ("_by_head", "_exact", "_lengths")

    def __init__(self, versions: Iterable[RuleVersion]) -> None:
        self._exact: dict[str, list[RuleVersion]] = {}
        self._by_head: dict[str, list[RuleVersion]] = {}
        for version in versions:
            match = version.rule.match
            by_text = self._exact if isinstance(match, ExactName) else self._by_head
            by_text.setdefault(match.head, []).append(version)
        self._lengths = sorted({len(head) for head in self._by_head})

    def matching(self, name: str) -> list[RuleVersion]:
        """Every version, living or past, that matches the name."""
        found = list(self._exact.get(name, ()))
        for length in self._lengths:
            if length > len(name):
                break
            of_this_head = self._by_head.get(name[:length], ())
            found.extend(version for version in of_this_head if version.rule.match.matches(name))
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
