"""The rule set aggregate: each command gives the ordered list of rules it wants; checks and the event follow from
that list.

Checks on the wanted list: each rule by itself (`rule_checks.py`), no match twice, no two rules that give topics one
name on their cluster, no exact or prefix rule that newly can never match.
The event holds the smallest set of changes (`ranks.py`); a command that changes nothing gives no event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum

from mesh.routing import (
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    NodeView,
    RoutingTable,
    Subject,
    may_move_topics,
)
from mesh.routing.fold import with_changes
from mesh.routing.templates import SUFFIX
from mesh.rpc import events
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.ranks import changes_between
from services.control.domain.rule_checks import check_rule
from services.control.domain.shadows import shadowed_rules

LONGEST_DERIVED_ID = 55
"""Characters that a rule_id made from a match may have before a number is added."""
MAX_RULES = 20_000
"""Rules in one set; twice what has been measured for one routing table."""
SUBJECT_IN_ID = {
    Subject.TOPIC: "",
    Subject.GROUP: "-group",
    Subject.TRANSACTIONAL_ID: "-txn",
    Subject.CLIENT_SOFTWARE: "-client",
}
"""How a rule_id made from a match says what the rule is about."""


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

    def update(self, rule_id: str, wanted: RuleFields, *, allow_shadowed: bool = False) -> RuleSetDecision:
        """Changes fields of a rule, in place."""
        rule = self.get(rule_id)
        changed = wanted.put_on(rule)
        return self._decide([changed if known is rule else known for known in self.table.rules], allow_shadowed)

    def set(
        self, match: Match, wanted: RuleFields, place: Place | Before | None = None, *, allow_shadowed: bool = False
    ) -> RuleSetDecision:
        """Changes the rule with exactly this match (its place stays), or adds one."""
        found = self.find(match)
        if found is None:
            rule = wanted.put_on(ForwardingRule("", match, ""))
            return self.create(rule, Place.LAST if place is None else place, allow_shadowed=allow_shadowed)
        return self.update(found.rule_id, wanted, allow_shadowed=allow_shadowed)

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
                check_rule(rule, self.table)
            if rule.rule_id in by_id:
                raise Exists(f"rules/{rule.rule_id}", f"rule_id {rule.rule_id!r} is given twice; ids are unique")
            if rule.match in by_match:
                other = by_match[rule.match].rule_id
                raise Exists(
                    f"rules/{other}",
                    f"rule {rule.rule_id!r}: rule {other!r} has the same match ({rule.match}); set its target instead",
                )
            by_id[rule.rule_id] = by_match[rule.match] = rule
        _refuse_shared_names(wanted)

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


def _refuse_shared_names(wanted: list[ForwardingRule]) -> None:
    """A topic of a cluster has one name for clients. Rules by pattern may overlap in single names; then the first one
    counts (`mesh.routing.table`).
    """
    topics = [rule for rule in wanted if rule.match.subject is Subject.TOPIC]
    if all(rule.template is None for rule in topics):
        return
    by_names: dict[tuple[str, str], ForwardingRule] = {}
    for rule in topics:
        names = _upstream_names(rule)
        if names is None:
            continue
        other = by_names.setdefault((rule.target_cluster, names), rule)
        if other is not rule:
            raise NotAllowed(
                "UPSTREAM_TOPIC_TAKEN",
                f"rules/{other.rule_id}",
                f"rule {rule.rule_id!r} ({rule.match}): rule {other.rule_id!r} ({other.match}) has topics of the same "
                f"name ({names}) on {rule.target_cluster!r} already, and clients know a topic by one name; "
                "give it another upstream_topic",
            )


def _upstream_names(rule: ForwardingRule) -> str | None:
    """What the rule's topics are called on their cluster, as far as two rules can be compared by it."""
    if isinstance(rule.match, ExactName):
        return rule.upstream_name(rule.match.text)
    of_suffix = (
        isinstance(rule.match, NamePrefix) and rule.template is not None and SUFFIX in rule.template.pieces[1::2]
    )
    return rule.upstream_topic if of_suffix else None


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
    """The rule with an id: its own, or one made from its match: "apples", "apples-prefix", "shop-group-prefix",
    "apples-2" where taken.
    """
    if rule.rule_id:
        return rule
    suffix = SUBJECT_IN_ID[rule.match.subject] + rule.match.suffix.replace("_", "-")
    text = re.sub(r"[^a-z0-9]+", "-", rule.match.text.lower()).strip("-")
    stem = text[: LONGEST_DERIVED_ID - len(suffix)].strip("-")
    base = f"{stem}{suffix}".strip("-") or "rule"
    rule_id, number = base, 1
    while rule_id in taken:
        number += 1
        rule_id = f"{base[:LONGEST_DERIVED_ID]}-{number}"
    return replace(rule, rule_id=rule_id)
