"""Edits of the rule set, which are carried out on a draft of it one after the other.

An edit refuses only what it can't carry out (a rule that is not there, an id that is taken). Whether the list can be is
checked once, when all edits of a command are done (`rules.py`): on the way it may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum

from mesh.routing import ForwardingRule, Match, NodeView, Subject, UnmatchedTopics
from services.control.domain.errors import Exists, Unknown

LONGEST_DERIVED_ID = 55
"""Characters that a rule_id made from a match may have before a number is added."""
SUBJECT_IN_ID = {
    Subject.TOPIC: "",
    Subject.GROUP: "-group",
    Subject.TRANSACTIONAL_ID: "-txn",
    Subject.CLIENT_SOFTWARE: "-client",
}
"""How a rule_id made from a match says what the rule is about."""
DEFAULT_CLUSTER_ID = "default"
NAMED = 20
"""Rules that an error names, at most."""

Rules = tuple[ForwardingRule, ...]


class Place(Enum):
    """Where a rule goes when not before another one."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Before:
    """Right before this rule."""

    rule_id: str


@dataclass(frozen=True, slots=True)
class RuleFields:
    """What a command says of a rule; None leaves it as it is."""

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
    """A rule set that is being edited: an order of ids, and what each of them stands for."""

    def __init__(self, rules: Iterable[ForwardingRule]) -> None:
        """Exists when two rules have one id."""
        self._order: list[str] = []
        self._rules: dict[str, ForwardingRule] = {}
        self._ids: dict[Match, str] = {}
        for rule in rules:
            if rule.rule_id in self._rules:
                raise Exists(f"rules/{rule.rule_id}", f"rule_id {rule.rule_id!r} is given twice; ids are unique")
            self.put(rule)

    @property
    def rules(self) -> Rules:
        return tuple(self._rules[rule_id] for rule_id in self._order)

    @property
    def taken(self) -> Collection[str]:
        """Ids of its rules."""
        return self._rules.keys()

    def get(self, rule_id: str, where: str = "") -> ForwardingRule:
        """Unknown, with `where` the rule was asked for, when there is none."""
        rule = self._rules.get(rule_id)
        return named(self.rules, rule_id, where) if rule is None else rule

    def id_of(self, match: Match) -> str | None:
        """The rule with exactly this match."""
        return self._ids.get(match)

    def put(self, rule: ForwardingRule, place: Place | Before = Place.LAST) -> None:
        """A new rule."""
        match place:
            case Place.FIRST:
                self._order.insert(0, rule.rule_id)
            case Place.LAST:
                self._order.append(rule.rule_id)
            case Before(rule_id):
                self.get(rule_id, "place: ")
                self._order.insert(self._order.index(rule_id), rule.rule_id)
        self._rules[rule.rule_id] = rule
        self._ids.setdefault(rule.match, rule.rule_id)

    def change(self, rule: ForwardingRule) -> None:
        """Another content for a rule that is there."""
        self._forget_match(self._rules[rule.rule_id])
        self._rules[rule.rule_id] = rule
        self._ids.setdefault(rule.match, rule.rule_id)

    def take_out(self, rule_id: str) -> ForwardingRule:
        rule = self.get(rule_id)
        self._order.remove(rule_id)
        self._forget_match(rule)
        return self._rules.pop(rule_id)

    def _forget_match(self, rule: ForwardingRule) -> None:
        if self._ids.get(rule.match) == rule.rule_id:
            del self._ids[rule.match]


@dataclass(frozen=True, slots=True)
class Create:
    """Adds a rule; an empty rule_id is made from the match."""

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
    """Takes a rule out."""

    rule_id: str

    def on(self, draft: Draft) -> Draft:
        draft.take_out(self.rule_id)
        return draft


@dataclass(frozen=True, slots=True)
class Replace:
    """Makes `wanted` the whole set, in its order. A rule whose match is there keeps its id."""

    wanted: Rules

    def on(self, draft: Draft) -> Draft:
        kept = [replace(rule, rule_id=draft.id_of(rule.match) or rule.rule_id) for rule in self.wanted]
        taken = {*draft.taken, *(rule.rule_id for rule in kept if rule.rule_id)}
        made: list[ForwardingRule] = []
        for rule in kept:
            made.append(_with_id(rule, taken))
            taken.add(made[-1].rule_id)
        return Draft(made)


Edit = Create | Update | Set | Move | Remove | Replace


def named(rules: Iterable[ForwardingRule], rule_id: str, where: str = "") -> ForwardingRule:
    """The rule of this id; Unknown, with `where` it was asked for, when there is none."""
    rules = tuple(rules)
    for rule in rules:
        if rule.rule_id == rule_id:
            return rule
    known = ", ".join(rule.rule_id for rule in rules[:NAMED]) or "none"
    raise Unknown(f"rules/{rule_id}", f"{where}rule {rule_id!r} does not exist (known: {known})")


def in_order(rules: Rules) -> Rules:
    """As they are tried: default clusters behind all others, wherever they were placed."""
    return tuple(sorted(rules, key=lambda rule: isinstance(rule.match, UnmatchedTopics)))


def _with_id(rule: ForwardingRule, taken: Collection[str]) -> ForwardingRule:
    """The rule with an id: its own, or one made from its match: "apples", "apples-prefix", "shop-group-prefix",
    "apples-2" where taken.
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
