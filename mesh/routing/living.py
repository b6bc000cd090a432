"""The living rules of a table: in the order in which they are tried, by their ids, and by how their names begin.

A change of a few rules makes the next `LivingRules` from the last: it places the changed rules, and copies the rest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

from mesh.routing.rules import ForwardingRule, Match, NameRegex, RuleVersion, UnmatchedTopics

MOST_PLACED = 100
"""With more changed rules, the rules are sorted anew by how their names begin, when a caller asks for that."""


class LivingRules:
    """Living rule versions in their order; a value that never changes."""

    __slots__ = ("_heads", "by_id", "ids", "kinds", "renaming", "rules", "versions")

    def __init__(
        self,
        versions: tuple[RuleVersion, ...],
        rules: tuple[ForwardingRule, ...],
        ids: tuple[str, ...],
        by_id: Mapping[str, RuleVersion],
        kinds: Mapping[type[Match], int],
        renaming: int,
    ) -> None:
        self.versions = versions
        self.rules = rules
        self.ids = ids
        self.by_id = by_id
        """The next LivingRules has the same objects where no change is about them."""
        self.kinds = kinds
        """How many rules match by exact name, by prefix, and so on."""
        self.renaming = renaming
        """How many rules give topics another name."""
        self._heads: list[tuple[str, str]] | None = None

    @classmethod
    def of(cls, ordered: tuple[RuleVersion, ...]) -> LivingRules:
        """The living ones of these versions, which are in their order."""
        living = tuple([version for version in ordered if version.until_revision is None])
        ids = tuple(map(attrgetter("rule.rule_id"), living))
        rules = tuple(map(attrgetter("rule"), living))
        by_id = dict(zip(ids, living, strict=True))
        return cls(living, rules, ids, by_id, Counter(map(_kind, rules)), sum(map(_renames, rules)))

    def place_of(self, version: RuleVersion) -> int:
        """The place of one of these versions, from 0."""
        place = bisect_left(self.versions, _order(version), key=_order)
        while self.versions[place] is not version:  # rules of old logs may have one rank
            place += 1
        return place

    def changed(self, by_id: Mapping[str, RuleVersion | None]) -> LivingRules:
        """The rules after a change. `by_id`: the version that now lives, for each rule that may have changed."""
        pairs = [(self.by_id.get(rule_id), version) for rule_id, version in by_id.items()]
        gone = [old for old, new in pairs if old is not None and old is not new]
        come = [new for old, new in pairs if new is not None and old is not new]
        versions, rules, ids, living = [*self.versions], [*self.rules], [*self.ids], {**self.by_id}
        for place in sorted(map(self.place_of, gone), reverse=True):
            del living[ids[place]]
            del versions[place], rules[place], ids[place]
        place = 0
        for version in sorted(come, key=_order):
            place = bisect_left(versions, _order(version), place, key=_order)
            versions.insert(place, version)
            rules.insert(place, version.rule)
            ids.insert(place, version.rule.rule_id)
            living[version.rule.rule_id] = version
        was, now = [each.rule for each in gone], [each.rule for each in come]
        kinds = Counter(self.kinds)
        kinds.subtract(map(_kind, was))
        kinds.update(map(_kind, now))
        renaming = self.renaming - sum(map(_renames, was)) + sum(map(_renames, now))
        after = LivingRules(tuple(versions), tuple(rules), tuple(ids), living, kinds, renaming)
        if len(gone) + len(come) <= MOST_PLACED:
            heads = after._heads = [*self._by_head]
            for version in gone:
                del heads[bisect_left(heads, _head(version.rule))]
            for version in come:
                insort(heads, _head(version.rule))
        return after

    @property
    def _by_head(self) -> list[tuple[str, str]]:
        """How the names of each rule begin, with the rule's id."""
        if self._heads is None:
            self._heads = sorted(map(_head, self.rules))
        return self._heads

    def near(self, heads: Collection[str]) -> list[ForwardingRule]:
        """The rules, in their order, that may match a name which a match with one of these heads has, too."""
        found: set[str] = set()
        for head in heads:
            for length in range(len(head)):
                found |= self._beginning(head[:length], exactly=True)
            found |= self._beginning(head, exactly=False)
        places = sorted(map(self.place_of, map(self.by_id.__getitem__, found)))
        return [self.rules[place] for place in places]

    def has_text(self, text: str) -> bool:
        """Whether some rule may have this text in its match; expressions are not looked up, so they all may."""
        return self.kinds.get(NameRegex, 0) > 0 or bool(self._beginning(text, exactly=True))

    def _beginning(self, head: str, *, exactly: bool) -> set[str]:
        """The ids of rules whose names begin with exactly this text, or with this text and more."""
        heads = self._by_head
        found: set[str] = set()
        for place in range(bisect_left(heads, (head,)), len(heads)):
            other, rule_id = heads[place]
            if not other.startswith(head) or (exactly and other != head):
                break
            found.add(rule_id)
        return found


def in_order(versions: Iterable[RuleVersion]) -> tuple[RuleVersion, ...]:
    """Versions, living and past ones, in the order in which they are tried: default clusters are last."""
    return tuple(sorted(versions, key=_order))


def _order(version: RuleVersion) -> tuple[bool, float, int]:
    return isinstance(version.rule.match, UnmatchedTopics), version.rank, version.from_revision


def _kind(rule: ForwardingRule) -> type[Match]:
    return type(rule.match)


def _renames(rule: ForwardingRule) -> bool:
    return rule.template is not None


def _head(rule: ForwardingRule) -> tuple[str, str]:
    return rule.match.head, rule.rule_id
