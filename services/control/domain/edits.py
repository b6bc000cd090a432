"""Edits of the rule set: each makes one ordered list of rules out of another.

An edit refuses only what it can't carry out (a rule that is not there, an id that is taken). Whether the list can be is
checked once, when all edits of a command are done (`rules.py`): on the way it may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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


@dataclass(frozen=True, slots=True)
class Create:
    """Adds a rule; an empty rule_id is made from the match."""

    rule: ForwardingRule
    place: Place | Before = Place.LAST

    def on(self, rules: Rules) -> Rules:
        taken = {known.rule_id for known in rules}
        if self.rule.rule_id in taken:
            raise Exists(
                f"rules/{self.rule.rule_id}",
                f"rule {self.rule.rule_id!r} exists; update it, or choose another rule_id",
            )
        return _placed(rules, _with_id(self.rule, taken), self.place)


@dataclass(frozen=True, slots=True)
class Update:
    """Changes fields of a rule, in place."""

    rule_id: str
    wanted: RuleFields

    def on(self, rules: Rules) -> Rules:
        rule = named(rules, self.rule_id)
        return tuple(self.wanted.put_on(known) if known is rule else known for known in rules)


@dataclass(frozen=True, slots=True)
class Set:
    """Changes the rule with exactly this match (its place stays), or adds one."""

    match: Match
    wanted: RuleFields
    place: Place | Before | None = None

    def on(self, rules: Rules) -> Rules:
        found = next((rule for rule in rules if rule.match == self.match), None)
        if found is not None:
            return Update(found.rule_id, self.wanted).on(rules)
        rule = self.wanted.put_on(ForwardingRule("", self.match, ""))
        return Create(rule, self.place or Place.LAST).on(rules)


@dataclass(frozen=True, slots=True)
class Move:
    """Moves a rule to another place in the order."""

    rule_id: str
    place: Place | Before

    def on(self, rules: Rules) -> Rules:
        rule = named(rules, self.rule_id)
        if self.place == Before(self.rule_id):
            return rules
        return _placed(tuple(known for known in rules if known is not rule), rule, self.place)


@dataclass(frozen=True, slots=True)
class Remove:
    """Takes a rule out."""

    rule_id: str

    def on(self, rules: Rules) -> Rules:
        rule = named(rules, self.rule_id)
        return tuple(known for known in rules if known is not rule)


@dataclass(frozen=True, slots=True)
class Replace:
    """Makes `wanted` the whole set, in its order. A rule whose match is there keeps its id."""

    wanted: Rules

    def on(self, rules: Rules) -> Rules:
        by_match = {rule.match: rule.rule_id for rule in rules}
        kept = [replace(rule, rule_id=by_match.get(rule.match, rule.rule_id)) for rule in self.wanted]
        taken = {rule.rule_id for rule in (*kept, *rules) if rule.rule_id}
        made: list[ForwardingRule] = []
        for rule in kept:
            made.append(_with_id(rule, taken))
            taken.add(made[-1].rule_id)
        return tuple(made)


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


def _placed(rules: Rules, rule: ForwardingRule, place: Place | Before) -> Rules:
    match place:
        case Place.FIRST:
            return (rule, *rules)
        case Place.LAST:
            return (*rules, rule)
        case Before(rule_id):
            index = rules.index(named(rules, rule_id, "place: "))
            return (*rules[:index], rule, *rules[index:])


def _with_id(rule: ForwardingRule, taken: set[str]) -> ForwardingRule:
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
