"""The living rules of a table: in the order in which they are tried, by their ids, and by how their names begin.

A change of a few rules makes the next `LivingRules` from the last, and reads no other rule (`ordered`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mesh.routing.heads import beginning_with, beginnings_of
from mesh.routing.ordered import Ordered
from mesh.routing.rules import ExactName, ForwardingRule, Match, NameRegex, RuleVersion, Subject, UnmatchedTopics

IN_A_STEP = 100
"""Versions that are put in their places within a millisecond."""


class LivingRules:
    """Living rule versions in their order; a value that never changes."""

    __slots__ = ("_made", "_rules", "_versions", "kinds", "ordered")

    def __init__(self, ordered: Ordered[RuleVersion], kinds: Mapping[type[Match], int]) -> None:
        self.ordered = ordered
        """The versions; the next LivingRules has the same objects where no change is about them."""
        self.kinds = kinds
        """How many rules match by exact name, by prefix, and so on."""
        self._made: dict[_Some, Ordered[RuleVersion]] = {}
        """Each is made when a caller asks for it, and changes carry it on."""
        self._versions: tuple[RuleVersion, ...] | None = None
        self._rules: tuple[ForwardingRule, ...] | None = None

    @classmethod
    def of(cls, versions: Iterable[RuleVersion]) -> LivingRules:
        """The living ones of these versions."""
        living = [version for version in versions if version.until_revision is None]
        rules = cls(Ordered(living, order_of), Counter(map(_kind, living)))
        for some in _ASKED_SOON:
            rules._some(some)
        return rules

    @classmethod
    def beside(
        cls, ordered: Ordered[RuleVersion], kinds: Mapping[type[Match], int], few: list[RuleVersion]
    ) -> Generator[None, None, LivingRules]:
        """The rules of these living versions, of which `is_asked_for_soon` holds for these few, step by step."""
        rules = cls(ordered, kinds)
        for some in _ASKED_SOON:
            made: Ordered[RuleVersion] = Ordered((), some.key)
            for start in range(0, len(few), IN_A_STEP):
                made = made.changed((), [*filter(some.has, few[start : start + IN_A_STEP])])
                yield
            rules._made[some] = made
        return rules

    @property
    def versions(self) -> tuple[RuleVersion, ...]:
        """All versions; with thousands of rules this takes a while at first."""
        if self._versions is None:
            self._versions = tuple(self.ordered)
        return self._versions

    @property
    def rules(self) -> tuple[ForwardingRule, ...]:
        """All rules, as above."""
        if self._rules is None:
            self._rules = tuple([version.rule for version in self.ordered])
        return self._rules

    def __len__(self) -> int:
        return len(self.ordered)

    def get(self, rule_id: str) -> RuleVersion | None:
        """The version of this rule."""
        return self._some(_BY_ID).find(rule_id)

    def place_of(self, version: RuleVersion) -> int:
        """The place of one of these versions, from 0."""
        return self.ordered.place_of(version)

    def between(self, start: int, stop: int) -> list[ForwardingRule]:
        """The rules from the place `start` to before the place `stop`."""
        return [version.rule for version in self.ordered.between(start, stop)]

    def changed(self, by_id: Mapping[str, RuleVersion | None]) -> LivingRules:
        """The rules after a change. `by_id`: the version that now lives, for each rule that may have changed."""
        pairs = [(self.get(rule_id), version) for rule_id, version in by_id.items()]
        gone = [old for old, new in pairs if old is not None and old is not new]
        come = [new for old, new in pairs if new is not None and old is not new]
        return self.replaced(gone, come)

    def replaced(self, gone: Collection[RuleVersion], come: Collection[RuleVersion]) -> LivingRules:
        """The rules without the versions that go, which are here, and with those that come."""
        kinds = Counter(self.kinds)
        kinds.subtract(map(_kind, gone))
        kinds.update(map(_kind, come))
        after = LivingRules(self.ordered.changed(gone, come), kinds)
        for some, versions in self._made.items():
            after._made[some] = versions.changed([*filter(some.has, gone)], [*filter(some.has, come)])
        return after

    def near(self, heads: Collection[str], start: int = 0) -> list[ForwardingRule]:
        """The rules, in their order, that may match a name which a match with one of these heads has, too.

        `start`: the place of the first rule that counts.
        """
        by_head, found = self._some(_BY_HEAD), dict[str, RuleVersion]()
        for head in heads:
            versions = chain(beginning_with(head, by_head), beginnings_of(head, by_head))
            found.update((version.rule.rule_id, version) for version in versions)
        least = [order_of(version) for version in self.ordered.between(start, start + 1)]
        return [version.rule for version in sorted(found.values(), key=order_of) if [order_of(version)] >= least > []]

    def with_text(self, match: Match) -> Iterator[RuleVersion]:
        """The versions whose match has this text, and begins like this match."""
        for version in self._some(_BY_HEAD).since((match.head, match.text)):
            if (version.rule.match.head, version.rule.match.text) != (match.head, match.text):
                return
            yield version

    @property
    def renaming(self) -> Ordered[RuleVersion]:
        """The versions that give topics another name, by their cluster and `names_there`."""
        return self._some(_RENAMING)

    @property
    def expressions(self) -> Ordered[RuleVersion]:
        """The versions that match by an expression, in their order."""
        return self._some(_EXPRESSIONS)

    @property
    def transactions(self) -> Ordered[RuleVersion]:
        """The versions about transactional ids, in their order."""
        return self._some(_TRANSACTIONS)

    @property
    def about_some(self) -> Ordered[RuleVersion]:
        """The versions that are about some clients only, in their order."""
        return self._some(_ABOUT_SOME)

    def _some(self, some: _Some) -> Ordered[RuleVersion]:
        if some not in self._made:
            self._made[some] = Ordered(filter(some.has, self.ordered), some.key)
        return self._made[some]


def versions_of(living: LivingRules, ended: tuple[RuleVersion, ...]) -> tuple[RuleVersion, ...]:
    """Living and past versions in the order in which they are tried: default clusters are last."""
    return tuple(sorted((*living.versions, *ended), key=order_of)) if ended else living.versions


def names_there(rule: ForwardingRule) -> str:
    """The topics' names on their cluster: the name that one topic has there, or the template of the names."""
    return rule.upstream_name(rule.match.text) if isinstance(rule.match, ExactName) else rule.upstream_topic


def order_of(version: RuleVersion) -> tuple[Any, ...]:
    rule = version.rule
    return isinstance(rule.match, UnmatchedTopics), version.rank, version.from_revision, rule.rule_id


def is_asked_for_soon(version: RuleVersion) -> bool:
    """Whether it is one of the few that each table is asked for (`LivingRules.renaming` and those that follow)."""
    return any(some.has(version) for some in _ASKED_SOON)


def _kind(version: RuleVersion) -> type[Match]:
    return type(version.rule.match)


def _head(version: RuleVersion) -> tuple[str, str, str]:
    match = version.rule.match
    return match.head, match.text, version.rule.rule_id


def _names(version: RuleVersion) -> tuple[str, str, str]:
    rule = version.rule
    return rule.target_cluster, names_there(rule), rule.rule_id


@dataclass(frozen=True, slots=True, eq=False)
class _Some:
    """Some of the versions, in an order of their own."""

    has: Callable[[RuleVersion], bool]
    key: Callable[[RuleVersion], Any]


_BY_ID = _Some(lambda version: True, lambda version: version.rule.rule_id)
_BY_HEAD = _Some(lambda version: True, _head)
_RENAMING = _Some(lambda version: version.rule.template is not None, _names)
_EXPRESSIONS = _Some(lambda version: isinstance(version.rule.match, NameRegex), order_of)
_ABOUT_SOME = _Some(lambda version: version.rule.match.client is not None, order_of)
_TRANSACTIONS = _Some(lambda version: version.rule.match.subject is Subject.TRANSACTIONAL_ID, order_of)
_ASKED_SOON = (_RENAMING, _EXPRESSIONS, _ABOUT_SOME, _TRANSACTIONS)
"""Few, and asked for after a change."""
