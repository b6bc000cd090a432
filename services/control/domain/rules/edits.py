"""Edits of the rule set; control makes them one after the other on a draft of the rule set.

An edit refuses only what it can't do (a rule that does not exist, an id that is taken). `rule_set.py` checks the whole
list once, after all edits of a command; between two edits the list may be invalid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum

from mesh.routing import ForwardingRule, Match, NodeView, Subject, UnmatchedTopics
from mesh.routing.living import LivingRules
from services.control.domain.errors import Exists, Unknown

LONGEST_DERIVED_ID = 55
"""The most characters of a rule_id made from a match, before a number is added."""
SUBJECT_IN_ID = {
    Subject.TOPIC: "",
    Subject.GROUP: "-group",
    Subject.TRANSACTIONAL_ID: "-txn",
    Subject.CLIENT_SOFTWARE: "-client",
}
"""The part of a rule_id made from a match that says what the rule is about."""
DEFAULT_CLUSTER_ID = "default"
NAMED = 20
"""The most rules that an error names."""

Rules = tuple[ForwardingRule, ...]


class Place(Enum):
    """The place of a rule that goes before no other named rule."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Before:
    """The place right before this rule."""

    rule_id: str


@dataclass(frozen=True, slots=True)
class RuleFields:
    """The fields of a rule that a command sets; None leaves a field as it is."""

    match: Match | None = None
    target_cluster: str | None = None
    upstream_topic: str | None = None
    shadow_topics: bool | None = None
    span_clusters: bool | None = None
    node_view: NodeView | None = None

    def put_on(self, rule: ForwardingRule) -> ForwardingRule:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return replace(rule, **{name: value for name, value in values if value is not None})


class Draft:
    """A rule set that is being edited. It holds the rules from the first to the last place that an edit touches."""

    def __init__(self, base: LivingRules) -> None:
        self._base = base
        self._defaults = len(base) - base.kinds.get(UnmatchedTopics, 0)
        """The place behind which default clusters stand."""
        self.start = self.stop = len(base)
        """The places in the base of the first rule of the draft, and behind the last one."""
        self._order: list[str] = []
        self._rules: dict[str, ForwardingRule] = {}
        self._gone: set[str] = set()
        """Ids of rules of the base that an edit has removed."""
        self._ids: dict[Match, list[str]] = {}

    @property
    def rules(self) -> list[ForwardingRule]:
        """The rules from `start` to `stop`, in the order in which gateways try them."""
        return in_order([*map(self._rules.__getitem__, self._order)])

    def has(self, rule_id: str) -> bool:
        """Whether a rule has this id."""
        return rule_id in self._rules or (self._base.get(rule_id) is not None and rule_id not in self._gone)

    def get(self, rule_id: str, where: str = "") -> ForwardingRule:
        """The rule of this id; Unknown if there is none. `where` is the part of the command that asked for it."""
        if not self.has(rule_id):
            self._reach(0, len(self._base))
            return named(self.rules, rule_id, where)
        if rule_id not in self._rules:
            self._reach_rule(rule_id)
        return self._rules[rule_id]

    def id_of(self, match: Match) -> str | None:
        """The id of the rule with exactly this match."""
        for rule_id in self._ids.get(match, ()):
            return rule_id
        known = (version.rule.rule_id for version in self._base.with_text(match) if version.rule.match == match)
        return next((each for each in known if each not in self._rules and each not in self._gone), None)

    def put(self, rule: ForwardingRule, place: Place | Before = Place.LAST) -> None:
        """Adds a new rule."""
        match place:
            case Place.FIRST:
                self._reach(0, 0)
                at = 0
            case Place.LAST:
                self._reach(len(self._base), len(self._base))
                at = len(self._order)
            case Before(rule_id):
                self.get(rule_id, "place: ")
                at = self._order.index(rule_id)
        self._order.insert(at, rule.rule_id)
        self._take(rule)

    def change(self, rule: ForwardingRule) -> None:
        """Replaces the content of an existing rule."""
        self._forget(self.get(rule.rule_id))
        self._take(rule)

    def take_out(self, rule_id: str) -> ForwardingRule:
        rule = self.get(rule_id)
        self._order.remove(rule_id)
        self._forget(rule)
        self._gone.add(rule_id)
        return self._rules.pop(rule_id)

    def replace(self, rules: Iterable[ForwardingRule]) -> None:
        """Takes these rules in the place of all."""
        self.start, self.stop = 0, len(self._base)
        self._order, self._rules, self._ids, self._gone = [], {}, {}, set()
        for rule in rules:
            if rule.rule_id in self._rules:
                raise Exists(f"rules/{rule.rule_id}", f"rule_id {rule.rule_id!r} is given twice; ids are unique")
            self._order.append(rule.rule_id)
            self._take(rule)

    def _take(self, rule: ForwardingRule) -> None:
        self._rules[rule.rule_id] = rule
        self._ids.setdefault(rule.match, []).append(rule.rule_id)
        if isinstance(rule.match, UnmatchedTopics):
            self._reach(len(self._base), len(self._base))

    def _forget(self, rule: ForwardingRule) -> None:
        self._ids[rule.match].remove(rule.rule_id)

    def _reach_rule(self, rule_id: str) -> None:
        version = self._base.get(rule_id)
        assert version is not None, "a rule of the base"
        place = self._base.place_of(version)
        self._reach(place, place + 1)

    def _reach(self, first: int, behind: int) -> None:
        """Takes in the rules of the base from the place `first` to before `behind`, with the rules between.

        The draft at least doubles each time, so many edits do not take in one rule each.
        """
        if behind > self._defaults:
            first, behind = min(first, self._defaults), len(self._base)
        if not self._order and self.start == self.stop:
            self.start = self.stop = first
        more = len(self._order)
        if first < self.start:
            first = max(0, min(first, self.start - more))
            self._fill(0, self._base.between(first, self.start))
            self.start = first
        if behind > self.stop:
            behind = max(behind, self.stop + more)
            behind = len(self._base) if behind > self._defaults else behind
            self._fill(len(self._order), self._base.between(self.stop, behind))
            self.stop = behind

    def _fill(self, at: int, rules: list[ForwardingRule]) -> None:
        self._order[at:at] = [rule.rule_id for rule in rules]
        for rule in rules:
            self._rules[rule.rule_id] = rule
            self._ids.setdefault(rule.match, []).append(rule.rule_id)


@dataclass(frozen=True, slots=True)
class Create:
    """Adds a rule; if its rule_id is empty, the id is made from the match."""

    rule: ForwardingRule
    place: Place | Before = Place.LAST

    def on(self, draft: Draft) -> Draft:
        if self.rule.rule_id and draft.has(self.rule.rule_id):
            raise Exists(
                f"rules/{self.rule.rule_id}",
                f"rule {self.rule.rule_id!r} exists; update it, or choose another rule_id",
            )
        draft.put(_with_id(self.rule, draft.has), self.place)
        return draft


@dataclass(frozen=True, slots=True)
class Update:
    """Changes fields of a rule, in place."""

    rule_id: str
    wanted: RuleFields

    def on(self, draft: Draft) -> Draft:
        draft.change(self.wanted.put_on(draft.get(self.rule_id)))
        return draft


@dataclass(frozen=True, slots=True)
class Set:
    """Changes the rule with exactly this match (its place stays), or adds one."""

    match: Match
    wanted: RuleFields
    place: Place | Before | None = None

    def on(self, draft: Draft) -> Draft:
        found = draft.id_of(self.match)
        if found is not None:
            return Update(found, self.wanted).on(draft)
        rule = self.wanted.put_on(ForwardingRule("", self.match, ""))
        return Create(rule, self.place or Place.LAST).on(draft)


@dataclass(frozen=True, slots=True)
class Reorder:
    """Moves a rule to another place in the order."""

    rule_id: str
    place: Place | Before

    def on(self, draft: Draft) -> Draft:
        draft.get(self.rule_id)
        if self.place != Before(self.rule_id):
            draft.put(draft.take_out(self.rule_id), self.place)
        return draft


@dataclass(frozen=True, slots=True)
class Remove:
    """Removes a rule."""

    rule_id: str

    def on(self, draft: Draft) -> Draft:
        draft.take_out(self.rule_id)
        return draft


@dataclass(frozen=True, slots=True)
class Replace:
    """Makes `wanted` the whole set, in its order. A rule with the match of an existing rule keeps that rule's id."""

    wanted: Rules

    def on(self, draft: Draft) -> Draft:
        kept = [replace(rule, rule_id=draft.id_of(rule.match) or rule.rule_id) for rule in self.wanted]
        taken = {rule.rule_id for rule in kept if rule.rule_id}
        made: list[ForwardingRule] = []
        for rule in kept:
            made.append(_with_id(rule, lambda rule_id: rule_id in taken or draft.has(rule_id)))
            taken.add(made[-1].rule_id)
        draft.replace(made)
        return draft


Edit = Create | Update | Set | Reorder | Remove | Replace


def named(rules: Iterable[ForwardingRule], rule_id: str, where: str = "") -> ForwardingRule:
    """The rule of this id; Unknown if there is none. `where` is the part of the command that asked for it."""
    rules = tuple(rules)
    for rule in rules:
        if rule.rule_id == rule_id:
            return rule
    known = ", ".join(rule.rule_id for rule in rules[:NAMED]) or "none"
    raise Unknown(f"rules/{rule_id}", f"{where}rule {rule_id!r} does not exist (known: {known})")


def in_order(rules: list[ForwardingRule]) -> list[ForwardingRule]:
    """The rules in the order in which gateways try them: default clusters are last, wherever a command placed them."""
    return sorted(rules, key=lambda rule: isinstance(rule.match, UnmatchedTopics))


def _with_id(rule: ForwardingRule, is_taken: Callable[[str], bool]) -> ForwardingRule:
    """The rule with its own id, or with an id made from its match.

    Examples: "apples", "apples-prefix", "shop-group-prefix"; "apples-2" where "apples" is taken.
    """
    if rule.rule_id:
        return rule
    suffix = SUBJECT_IN_ID[rule.match.subject] + rule.match.suffix.replace("_", "-")
    said = DEFAULT_CLUSTER_ID if isinstance(rule.match, UnmatchedTopics) else rule.match.text
    text = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")
    stem = text[: LONGEST_DERIVED_ID - len(suffix)].strip("-")
    base = f"{stem}{suffix}".strip("-") or "rule"
    rule_id, number = base, 1
    while is_taken(rule_id):
        number += 1
        rule_id = f"{base[:LONGEST_DERIVED_ID]}-{number}"
    return replace(rule, rule_id=rule_id)
