"""Edits of the rule set; control makes them one after the other on a draft of the rule set.

An edit refuses only what it can't do (a rule that does not exist, an id that is taken). `rules.py` checks the whole
list once, after all edits of a command; between two edits the list may be invalid.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum
from operator import attrgetter

from mesh.routing import ForwardingRule, Match, NodeView, Subject, UnmatchedTopics
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
    """A rule set that is being edited: the order of the ids, and the rule of each id."""

    def __init__(self, ids: Iterable[str], rules: Iterable[ForwardingRule]) -> None:
        """Makes a draft of these rules, given with their ids; Exists when two rules have one id."""
        self._order = [*ids]
        self._rules = dict(zip(self._order, rules, strict=True))
        self._ids: dict[Match, str] | None = None
        """Made when a caller asks for a match: most edits name a rule by its id."""
        if len(self._rules) < len(self._order):
            seen = set[str]()
            for rule_id in self._order:
                if rule_id in seen:
                    raise Exists(f"rules/{rule_id}", f"rule_id {rule_id!r} is given twice; ids are unique")
                seen.add(rule_id)

    @property
    def rules(self) -> Rules:
        return tuple(map(self._rules.__getitem__, self._order))

    @property
    def taken(self) -> Collection[str]:
        """The ids of the draft's rules."""
        return self._rules.keys()

    def get(self, rule_id: str, where: str = "") -> ForwardingRule:
        """The rule of this id; Unknown if there is none. `where` is the part of the command that asked for it."""
        rule = self._rules.get(rule_id)
        return named(self.rules, rule_id, where) if rule is None else rule

    def id_of(self, match: Match) -> str | None:
        """The id of the rule with exactly this match."""
        if self._ids is None:
            self._ids = {}
            for rule in self._rules.values():
                self._ids.setdefault(rule.match, rule.rule_id)
        return self._ids.get(match)

    def put(self, rule: ForwardingRule, place: Place | Before = Place.LAST) -> None:
        """Adds a new rule."""
        match place:
            case Place.FIRST:
                self._order.insert(0, rule.rule_id)
            case Place.LAST:
                self._order.append(rule.rule_id)
            case Before(rule_id):
                self.get(rule_id, "place: ")
                self._order.insert(self._order.index(rule_id), rule.rule_id)
        self._rules[rule.rule_id] = rule
        self._know_match(rule)

    def change(self, rule: ForwardingRule) -> None:
        """Replaces the content of an existing rule."""
        self._forget_match(self._rules[rule.rule_id])
        self._rules[rule.rule_id] = rule
        self._know_match(rule)

    def take_out(self, rule_id: str) -> ForwardingRule:
        rule = self.get(rule_id)
        self._order.remove(rule_id)
        self._forget_match(rule)
        return self._rules.pop(rule_id)

    def _know_match(self, rule: ForwardingRule) -> None:
        if self._ids is not None:
            self._ids.setdefault(rule.match, rule.rule_id)

    def _forget_match(self, rule: ForwardingRule) -> None:
        if self._ids is not None and self._ids.get(rule.match) == rule.rule_id:
            del self._ids[rule.match]


@dataclass(frozen=True, slots=True)
class Create:
    """Adds a rule; if its rule_id is empty, the id is made from the match."""

    rule: ForwardingRule
    place: Place | Before = Place.LAST

    def on(self, draft: Draft) -> Draft:
        if self.rule.rule_id in draft.taken:
            raise Exists(
                f"rules/{self.rule.rule_id}",
                f"rule {self.rule.rule_id!r} exists; update it, or choose another rule_id",
            )
        draft.put(_with_id(self.rule, draft.taken), self.place)
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
class Move:
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
        taken = {*draft.taken, *(rule.rule_id for rule in kept if rule.rule_id)}
        made: list[ForwardingRule] = []
        for rule in kept:
            made.append(_with_id(rule, taken))
            taken.add(made[-1].rule_id)
        return Draft([rule.rule_id for rule in made], made)


Edit = Create | Update | Set | Move | Remove | Replace


def named(rules: Iterable[ForwardingRule], rule_id: str, where: str = "") -> ForwardingRule:
    """The rule of this id; Unknown if there is none. `where` is the part of the command that asked for it."""
    rules = tuple(rules)
    for rule in rules:
        if rule.rule_id == rule_id:
            return rule
    known = ", ".join(rule.rule_id for rule in rules[:NAMED]) or "none"
    raise Unknown(f"rules/{rule_id}", f"{where}rule {rule_id!r} does not exist (known: {known})")


def in_order(rules: Rules) -> Rules:
    """The rules in the order in which gateways try them: default clusters are last, wherever a command placed them."""
    if UnmatchedTopics not in map(type, map(attrgetter("match"), rules)):
        return rules
    last = [rule for rule in rules if isinstance(rule.match, UnmatchedTopics)]
    return (*(rule for rule in rules if not isinstance(rule.match, UnmatchedTopics)), *last)


def _with_id(rule: ForwardingRule, taken: Collection[str]) -> ForwardingRule:
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
    while rule_id in taken:
        number += 1
        rule_id = f"{base[:LONGEST_DERIVED_ID]}-{number}"
    return replace(rule, rule_id=rule_id)
