"""The rule set aggregate: each command gives the ordered list of rules it wants; checks and the event follow from
that list.

Checks on the wanted list: targets are registered, no match twice, no exact or prefix rule that newly can never match.
The event holds the smallest set of changes (`ranks.py`); a command that changes nothing gives no event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from mesh.routing import ExactName, ForwardingRule, Match, NamePrefix, RoutingTable, may_move_topics
from mesh.routing.fold import with_changes
from mesh.rpc import events
from mesh.topics import is_topic_name
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.ranks import changes_between
from services.control.domain.shadows import shadowed_rules

RULE_ID = re.compile(r"[a-z0-9-]{1,63}")
TOPIC_CHARACTERS = re.compile(r"[a-zA-Z0-9._-]*")
LONGEST_DERIVED_ID = 55
"""Characters that a rule_id made from a match may have before a number is added."""
MAX_RULES = 20_000
"""Rules in one set; ten times what has been measured for one routing table."""


class Place(Enum):
    """Where a rule goes when not before another one."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Before:
    """Right before this rule."""

    rule_id: str


@dataclass(frozen=True, slots=True)
class RuleSetDecision:
    """What a command comes to: the event (None when nothing changes) and the routing table that it makes."""

    event: events.RuleSetChanged | None
    before: RoutingTable
    after: RoutingTable

    @property
    def changed_ids(self) -> list[str]:
        """Rules created, changed or moved, in their order."""
        old = {version.rule.rule_id: (version.rule, version.rank) for version in self.before.living}
        return [v.rule.rule_id for v in self.after.living if old.get(v.rule.rule_id) != (v.rule, v.rank)]

    @property
    def removed_ids(self) -> list[str]:
        kept = {rule.rule_id for rule in self.after.rules}
        return [rule.rule_id for rule in self.before.rules if rule.rule_id not in kept]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules in force, at a revision that callers compare with."""

    table: RoutingTable
    revision: int

    def expect(self, revision: int) -> None:
        """Compare-and-set: refuses when the caller saw another revision; 0 means any."""
        if revision and revision != self.revision:
            raise Conflict(
                "REVISION_MISMATCH",
                f"the rule set is at revision {self.revision}, not {revision}: read the rules again and decide anew",
                {"current_revision": str(self.revision), "expected_revision": str(revision)},
            )

    def get(self, rule_id: str) -> ForwardingRule:
        for rule in self.table.rules:
            if rule.rule_id == rule_id:
                return rule
        known = ", ".join(rule.rule_id for rule in self.table.rules[:20]) or "none"
        raise Unknown(f"rules/{rule_id}", f"rule {rule_id!r} does not exist (known: {known})")

    def find(self, match: Match) -> ForwardingRule | None:
        """The rule with exactly this match."""
        return next((rule for rule in self.table.rules if rule.match == match), None)

    # Commands

    def create(
        self, rule: ForwardingRule, place: Place | Before = Place.LAST, *, allow_shadowed: bool = False
    ) -> RuleSetDecision:
        """Adds a rule; an empty rule_id is made from the match."""
        rules = list(self.table.rules)
        if rule.rule_id and any(known.rule_id == rule.rule_id for known in rules):
            raise Exists(f"rules/{rule.rule_id}", f"rule {rule.rule_id!r} exists; update it, or choose another rule_id")
        rule = _with_id(rule, {known.rule_id for known in rules})
        return self._decide(_placed(rules, rule, place), allow_shadowed)

    def update(
        self, rule_id: str, *, match: Match | None = None, target: str | None = None, allow_shadowed: bool = False
    ) -> RuleSetDecision:
        """Changes match, target or both of a rule, in place."""
        rule = self.get(rule_id)
        changed = replace(
            rule, match=match or rule.match, target_cluster=rule.target_cluster if target is None else target
        )
        return self._decide([changed if known is rule else known for known in self.table.rules], allow_shadowed)

    def set(
        self, match: Match, target: str, place: Place | Before | None = None, *, allow_shadowed: bool = False
    ) -> RuleSetDecision:
        """Retargets the rule with exactly this match (its place stays), or adds one."""
        found = self.find(match)
        if found is None:
            rule = ForwardingRule("", match, target)
            return self.create(rule, Place.LAST if place is None else place, allow_shadowed=allow_shadowed)
        return self.update(found.rule_id, target=target, allow_shadowed=allow_shadowed)

    def move(self, rule_id: str, place: Place | Before, *, allow_shadowed: bool = False) -> RuleSetDecision:
        rule = self.get(rule_id)
        if place == Before(rule_id):
            return self._decide(list(self.table.rules), allow_shadowed)
        others = [known for known in self.table.rules if known is not rule]
        return self._decide(_placed(others, rule, place), allow_shadowed)

    def remove(self, rule_id: str) -> RuleSetDecision:
        rule = self.get(rule_id)
        return self._decide([known for known in self.table.rules if known is not rule], allow_shadowed=True)

    def replace(self, wanted: Sequence[ForwardingRule], *, allow_shadowed: bool = False) -> RuleSetDecision:
        """Makes `wanted` the whole set, in its order. A rule whose match is there keeps its id."""
        by_match = {rule.match: rule.rule_id for rule in self.table.rules}
        named = [by_match.get(rule.match, rule.rule_id) for rule in wanted]
        taken = {rule_id for rule_id in named if rule_id} | {rule.rule_id for rule in self.table.rules}
        rules: list[ForwardingRule] = []
        for rule, rule_id in zip(wanted, named, strict=True):
            rules.append(_with_id(replace(rule, rule_id=rule_id), taken))
            taken.add(rules[-1].rule_id)
        return self._decide(rules, allow_shadowed)

    def _decide(self, wanted: list[ForwardingRule], allow_shadowed: bool) -> RuleSetDecision:
        self._check(wanted)
        if not allow_shadowed:
            self._refuse_new_shadows(wanted)
        changes = changes_between(self.table.living, wanted)
        if not changes:
            return RuleSetDecision(None, self.table, self.table)
        # the position is not known yet; any revision above all others gives the same living rules
        after = with_changes(self.table, self.table.revision + 1, changes)
        event = events.RuleSetChanged(changes=changes, needs_hold=may_move_topics(self.table, after))
        return RuleSetDecision(event, self.table, after)

    def _check(self, wanted: list[ForwardingRule]) -> None:
        if len(wanted) > MAX_RULES:
            raise InvalidField("rules", f"{len(wanted)} rules are more than the {MAX_RULES} that a mesh may have")
        kept = {rule.rule_id: rule for rule in self.table.rules}
        by_id: dict[str, ForwardingRule] = {}
        by_match: dict[Match, ForwardingRule] = {}
        for rule in wanted:
            if kept.get(rule.rule_id) != rule:
                _check_rule(rule, self.table)
            if rule.rule_id in by_id:
                raise Exists(f"rules/{rule.rule_id}", f"rule_id {rule.rule_id!r} is given twice; ids are unique")
            if rule.match in by_match:
                other = by_match[rule.match].rule_id
                raise Exists(
                    f"rules/{other}",
                    f"rule {rule.rule_id!r}: rule {other!r} has the same match ({rule.match}); set its target instead",
                )
            by_id[rule.rule_id] = by_match[rule.match] = rule

    def _refuse_new_shadows(self, wanted: list[ForwardingRule]) -> None:
        shadows = shadowed_rules(wanted)
        if not shadows:
            return
        before = shadowed_rules(self.table.rules)
        for rule, cover in shadows.items():
            if rule not in before:
                raise NotAllowed(
                    "RULE_SHADOWED",
                    f"rules/{rule.rule_id}",
                    f"rule {rule.rule_id!r} ({rule.match}) would never match: "
                    f"rule {cover.rule_id!r} ({cover.match}) comes first and covers it; "
                    f"place it before {cover.rule_id!r}, or set allow_shadowed",
                )


def _check_rule(rule: ForwardingRule, table: RoutingTable) -> None:
    if not RULE_ID.fullmatch(rule.rule_id):
        raise InvalidField("rule.rule_id", f"{rule.rule_id!r} is not 1 to 63 characters of a-z, 0-9 and '-'")
    match rule.match:
        case ExactName(name) if not is_topic_name(name):
            raise InvalidField(
                "rule.match.topic", f"{name!r} is no topic name: Kafka knows a-z, A-Z, 0-9, '.', '_' and '-'"
            )
        case NamePrefix(prefix) if not TOPIC_CHARACTERS.fullmatch(prefix):
            raise InvalidField(
                "rule.match.topic_prefix",
                f"no topic begins with {prefix!r}: Kafka knows a-z, A-Z, 0-9, '.', '_' and '-'",
            )
        case _:
            pass
    if rule.target_cluster not in table.clusters:
        known = ", ".join(table.clusters) or "none; register one first"
        raise NotAllowed(
            "CLUSTER_NOT_REGISTERED",
            f"clusters/{rule.target_cluster}",
            f"rule {rule.rule_id!r}: target cluster {rule.target_cluster!r} is not registered (known: {known})",
        )


def _placed(rules: list[ForwardingRule], rule: ForwardingRule, place: Place | Before) -> list[ForwardingRule]:
    match place:
        case Place.FIRST:
            return [rule, *rules]
        case Place.LAST:
            return [*rules, rule]
        case Before(rule_id):
            for index, known in enumerate(rules):
                if known.rule_id == rule_id:
                    return [*rules[:index], rule, *rules[index:]]
            known_ids = ", ".join(known.rule_id for known in rules[:20]) or "none"
            raise Unknown(f"rules/{rule_id}", f"place: rule {rule_id!r} does not exist (known: {known_ids})")


def _with_id(rule: ForwardingRule, taken: set[str]) -> ForwardingRule:
    """The rule with an id: its own, or one made from its match: "apples", "apples-prefix", "apples-2" where taken."""
    if rule.rule_id:
        return rule
    match rule.match:
        case ExactName(text):
            suffix = ""
        case NamePrefix(text):
            suffix = "-prefix"
        case other:
            text, suffix = other.text, "-regex"
    stem = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST_DERIVED_ID].strip("-")
    base = f"{stem}{suffix}".strip("-") or "rule"
    rule_id, number = base, 1
    while rule_id in taken:
        number += 1
        rule_id = f"{base[:LONGEST_DERIVED_ID]}-{number}"
    return replace(rule, rule_id=rule_id)
