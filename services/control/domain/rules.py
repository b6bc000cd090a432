"""The rule set aggregate: each command gives the ordered list of rules that it wants.

The list comes from edits of the present list (`edits.py`), or from an earlier revision. Checks and the event follow
from this list.

Checks on the wanted list: `rule_checks.py` checks each rule by itself. No two rules have the same match, and no two
rules give topics one name on their cluster. No exact or prefix rule newly becomes unable to match.
The event holds the smallest set of changes (`ranks.py`); a command that changes nothing gives no event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter

from mesh.order import ends_alike
from mesh.routing import (
    ClientMatch,
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    RoutingTable,
    Subject,
    may_move_topics,
)
from mesh.routing.fold import with_changes
from mesh.routing.living import LivingRules
from mesh.routing.templates import SUFFIX
from mesh.rpc import events
from services.control.domain.edits import Draft, Edit, Rules, in_order, named
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed
from services.control.domain.ranks import changes_between
from services.control.domain.rule_checks import check_rule
from services.control.domain.shadows import near, shadowed_rules

MAX_RULES = 20_000
"""The most rules in one set; twice the number that has been measured for one routing table."""


@dataclass(frozen=True, slots=True)
class RuleSetDecision:
    """The result of a command: the event (None when nothing changes) and the routing table that it makes."""

    event: events.RuleSetChanged | None
    before: RoutingTable
    after: RoutingTable

    @property
    def changed(self) -> list[tuple[int, ForwardingRule]]:
        """Rules created, changed or moved, in their order, each with its place from 1."""
        rules = self.after.living_rules
        places = sorted(rules.place_of(rules.by_id[rule_id]) for rule_id in changed_by(self.event))
        return [(place + 1, rules.rules[place]) for place in places]

    @property
    def changed_ids(self) -> list[str]:
        return [rule.rule_id for _, rule in self.changed]

    @property
    def removed_ids(self) -> list[str]:
        return [] if self.event is None else [each.removed for each in self.event.changes if each.removed]


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
        return named(self.table.rules, rule_id)

    def change(self, *edits: Edit, allow_shadowed: bool = False) -> RuleSetDecision:
        """Carries the edits out in their order, all or none."""
        draft = Draft(self.table.living_rules.ids, self.table.rules)
        for edit in edits:
            draft = edit.on(draft)
        return self._decide(draft.rules, allow_shadowed)

    def bring_back(self, rules: Rules, revision: int) -> RuleSetDecision:
        """Puts the rules of an earlier revision in force again: their ids, their order, and all their fields.

        Rules that can never match are allowed: the earlier command accepted them.
        """
        self._refuse_lost_targets(rules, revision)
        decision = self._decide(rules, allow_shadowed=True)
        if decision.event is not None:
            decision.event.reverted_to = revision
        return decision

    def _decide(self, wanted: Rules, allow_shadowed: bool) -> RuleSetDecision:
        wanted = in_order(wanted)
        if len(wanted) > MAX_RULES:
            raise InvalidField("rules", f"{len(wanted)} rules are more than the {MAX_RULES} that a mesh may have")
        start, end = ends_alike(self.table.rules, wanted)
        self._check(wanted, start, end)
        changes = changes_between(self.table.living_rules, wanted, start, end)
        if not changes:
            return RuleSetDecision(None, self.table, self.table)
        event = events.RuleSetChanged(changes=changes)
        # the position is not known yet; any revision above all others gives the same living rules
        after = with_changes(self.table, self.table.revision + 1, changes)
        if not allow_shadowed:
            self._refuse_new_shadows(after.living_rules, changed_by(event))
        event.needs_hold = may_move_topics(self.table, after)
        return RuleSetDecision(event, self.table, after)

    def _check(self, wanted: Rules, start: int, end: int) -> None:
        """Checks the wanted rules; those at the start and at the end are in force already."""
        kept = {rule.rule_id: rule for rule in self.table.rules[start : len(self.table.rules) - end]}
        new = [
            rule
            for rule in wanted[start : len(wanted) - end]
            if (before := kept.get(rule.rule_id)) is None or before != rule
        ]
        for rule in new:
            check_rule(rule, self.table)
        texts = self._met_again(new)  # matches of rules that stay differ already
        by_match: dict[Match, ForwardingRule] = {}
        of_wanted = map(attrgetter("match.text"), wanted) if texts else ()
        for rule in compress(wanted, map(texts.__contains__, of_wanted)):
            first = by_match.setdefault(rule.match, rule)
            if first is not rule:
                other = first.rule_id
                raise Exists(
                    f"rules/{other}",
                    f"rule {rule.rule_id!r}: rule {other!r} has the same match ({rule.match}); set its target instead",
                )
        if self.table.living_rules.renaming or any(rule.template for rule in new):
            _refuse_shared_names(wanted)

    def _met_again(self, new: Sequence[ForwardingRule]) -> set[str]:
        """Those texts of new matches that other rules may have, too."""
        known = self.table.living_rules
        times = Counter(rule.match.text for rule in new)
        return {text for text, number in times.items() if number > 1 or known.has_text(text)}

    def _refuse_lost_targets(self, wanted: Rules, revision: int) -> None:
        for rule in wanted:
            if rule.target_cluster and rule.target_cluster not in self.table.clusters:
                raise NotAllowed(
                    "CLUSTER_NOT_REGISTERED",
                    f"rules/{rule.rule_id}",
                    f"revision {revision} can't come back: its rule {rule.rule_id!r} leads to cluster "
                    f"{rule.target_cluster!r}, which has been removed since; register it again, or make the rules "
                    "that are wanted one by one",
                )

    def _refuse_new_shadows(self, wanted: LivingRules, changed: Collection[str]) -> None:
        """A rule that is shadowed from now on has changed, or the one that covers it."""
        heads = {wanted.by_id[rule_id].rule.match.head for rule_id in changed}
        shadows = shadowed_rules(near(wanted, heads))
        if not shadows:
            return
        before = shadowed_rules(near(self.table.living_rules, heads))
        for rule, cover in shadows.items():
            if rule not in before:
                raise NotAllowed(
                    "RULE_SHADOWED",
                    f"rules/{rule.rule_id}",
                    f"rule {rule.rule_id!r} ({rule.match}) would never match: "
                    f"rule {cover.rule_id!r} ({cover.match}) comes first and covers it; "
                    f"place it before {cover.rule_id!r}, or set allow_shadowed",
                )


def changed_by(event: events.RuleSetChanged | None) -> set[str]:
    """Ids of the rules that are created, updated or moved."""
    changes = () if event is None else event.changes
    return {each.created.rule_id or each.updated.rule_id or each.moved for each in changes if not each.removed}


def _refuse_shared_names(wanted: Rules) -> None:
    """Refuses rules that give a topic of a cluster two names for clients.

    Rules by pattern may overlap in single names; then the first rule counts (`mesh.routing.table`).
    """
    topics = [rule for rule in wanted if rule.match.subject is Subject.TOPIC]
    by_names: dict[tuple[str, str], dict[tuple[type[Match], str], list[ForwardingRule]]] = {}
    for rule in topics:
        names = _upstream_names(rule)
        if names is None:
            continue
        alike = by_names.setdefault((rule.target_cluster, names), {})
        topics_of_clients = (type(rule.match), rule.match.text)
        for others in (rules for known, rules in alike.items() if known != topics_of_clients):
            other = next((each for each in others if not _exclude(each.match.client, rule.match.client)), None)
            if other is not None:
                raise NotAllowed(
                    "UPSTREAM_TOPIC_TAKEN",
                    f"rules/{other.rule_id}",
                    f"rule {rule.rule_id!r} ({rule.match}): rule {other.rule_id!r} ({other.match}) has topics of the "
                    f"same name ({names}) on {rule.target_cluster!r} already, and clients know a topic by one name; "
                    "give it another upstream_topic",
                )
        alike.setdefault(topics_of_clients, []).append(rule)


def _exclude(one: ClientMatch | None, other: ClientMatch | None) -> bool:
    """Whether no client can see both rules."""
    return one is not None and other is not None and one.both(other) is None


def _upstream_names(rule: ForwardingRule) -> str | None:
    """The names of the rule's topics on their cluster, in a form that is comparable with other rules; else None."""
    if isinstance(rule.match, ExactName):
        return rule.upstream_name(rule.match.text)
    of_suffix = (
        isinstance(rule.match, NamePrefix) and rule.template is not None and SUFFIX in rule.template.pieces[1::2]
    )
    return rule.upstream_topic if of_suffix else None
