"""The rule set aggregate: each command gives the ordered list of rules that it wants.

The list comes from edits of the present list (`edits.py`), or from an earlier revision. Checks and the event follow
from this list.

Checks on the wanted list: `checks.py` checks each rule by itself. No two rules have the same match, and no two
rules give topics one name on their cluster. No exact or prefix rule newly becomes unable to match.
The event holds the smallest set of changes (`ranks.py`); a command that changes nothing gives no event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

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
from mesh.routing.living import LivingRules, names_there
from mesh.routing.templates import SUFFIX
from mesh.rpc import events
from mesh.topics import is_topic_name
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed
from services.control.domain.rules.checks import check_rule
from services.control.domain.rules.edits import Draft, Edit, Rules, named
from services.control.domain.rules.ranks import changes_between
from services.control.domain.rules.shadows import near, shadowed_rules

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
        versions = [version for rule_id in changed_by(self.event) if (version := rules.get(rule_id)) is not None]
        return sorted(((rules.place_of(version) + 1, version.rule) for version in versions), key=itemgetter(0))

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
        version = self.table.living_rules.get(rule_id)
        return named(self.table.rules, rule_id) if version is None else version.rule

    def change(self, *edits: Edit, allow_shadowed: bool = False) -> RuleSetDecision:
        """Carries the edits out in their order, all or none."""
        draft = Draft(self.table.living_rules)
        for edit in edits:
            draft = edit.on(draft)
        return self._decide(draft, allow_shadowed)

    def bring_back(self, rules: Rules, revision: int) -> RuleSetDecision:
        """Puts the rules of an earlier revision in force again: their ids, their order, and all their fields.

        Rules that can never match are allowed: the earlier command accepted them.
        """
        self._refuse_lost_targets(rules, revision)
        draft = Draft(self.table.living_rules)
        draft.replace(rules)
        decision = self._decide(draft, allow_shadowed=True)
        if decision.event is not None:
            decision.event.reverted_to = revision
        return decision

    def _decide(self, draft: Draft, allow_shadowed: bool) -> RuleSetDecision:
        known, coming = self.table.living_rules, draft.rules
        number = len(known) - (draft.stop - draft.start) + len(coming)
        if number > MAX_RULES:
            raise InvalidField("rules", f"{number} rules are more than the {MAX_RULES} that a mesh may have")
        going = known.between(draft.start, draft.stop)
        first, last = ends_alike(going, coming)
        start, stop = draft.start + first, draft.stop - last
        going, coming = going[first : len(going) - last], coming[first : len(coming) - last]
        self._check(going, coming)
        changes = changes_between(known, start, coming, stop)
        if not changes:
            return RuleSetDecision(None, self.table, self.table)
        event = events.RuleSetChanged(changes=changes)
        # the position is not known yet; any revision above all others gives the same living rules
        after = with_changes(self.table, self.table.revision + 1, changes)
        if not allow_shadowed:
            self._refuse_new_shadows(after.living_rules, changed_by(event))
        event.needs_hold = may_move_topics(self.table, after)
        return RuleSetDecision(event, self.table, after)

    def _check(self, going: Sequence[ForwardingRule], coming: Sequence[ForwardingRule]) -> None:
        """Checks the rules that take the place of others; the rest of the rules stays."""
        before, staying = {rule.rule_id: rule for rule in going}, self.table.living_rules
        new = [rule for rule in coming if before.get(rule.rule_id) != rule]
        for rule in new:
            check_rule(rule, self.table)
        by_match: dict[Match, ForwardingRule] = {}
        for rule in coming:
            other = by_match.setdefault(rule.match, rule)
            if other is not rule:
                raise _same_match(rule, other)
        for rule in new:
            for version in staying.with_text(rule.match):
                if version.rule.match == rule.match and version.rule.rule_id not in before:
                    raise _same_match(rule, version.rule)
        _refuse_shared_names(new, coming, [rule for rule in _sharing_names(new, staying) if rule.rule_id not in before])

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
        versions = map(wanted.get, changed)
        heads = {version.rule.match.head for version in versions if version is not None}
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


def _same_match(rule: ForwardingRule, other: ForwardingRule) -> Exists:
    return Exists(
        f"rules/{other.rule_id}",
        f"rule {rule.rule_id!r}: rule {other.rule_id!r} has the same match ({rule.match}); set its target instead",
    )


def _sharing_names(new: Iterable[ForwardingRule], staying: LivingRules) -> Iterator[ForwardingRule]:
    """Rules that may give topics of the same cluster the names that new rules give."""
    for names in {_names(rule) for rule in new if rule.match.subject is Subject.TOPIC}:
        if names is None:
            continue
        for version in staying.renaming.since(names):
            if _names(version.rule) != names:
                break
            yield version.rule
        for version in staying.with_text(ExactName(names[1])) if is_topic_name(names[1]) else ():
            if version.rule.template is None:
                yield version.rule


def _refuse_shared_names(
    new: Collection[ForwardingRule], coming: Iterable[ForwardingRule], staying: Iterable[ForwardingRule]
) -> None:
    """Refuses new rules that give a topic of a cluster two names for clients.

    Rules by pattern may overlap in single names; then the first rule counts (`mesh.routing.table`).
    """
    concerned = {_names(rule) for rule in new} - {None}
    by_names: dict[tuple[str, str], dict[tuple[type[Match], str], list[ForwardingRule]]] = {}
    for rule in chain(staying, coming):
        names = _names(rule)
        if names is None or names not in concerned:
            continue
        alike = by_names.setdefault(names, {})
        topics_of_clients = (type(rule.match), rule.match.text)
        for others in (rules for known, rules in alike.items() if known != topics_of_clients):
            other = next((each for each in others if not _exclude(each.match.client, rule.match.client)), None)
            if other is not None:
                raise NotAllowed(
                    "UPSTREAM_TOPIC_TAKEN",
                    f"rules/{other.rule_id}",
                    f"rule {rule.rule_id!r} ({rule.match}): rule {other.rule_id!r} ({other.match}) has topics of the "
                    f"same name ({names[1]}) on {rule.target_cluster!r} already, and clients know a topic by one name; "
                    "give it another upstream_topic",
                )
        alike.setdefault(topics_of_clients, []).append(rule)


def _exclude(one: ClientMatch | None, other: ClientMatch | None) -> bool:
    """Whether no client can see both rules."""
    return one is not None and other is not None and one.both(other) is None


def _names(rule: ForwardingRule) -> tuple[str, str] | None:
    """The cluster and the names of the rule's topics there, if they are comparable with those of other rules."""
    if rule.match.subject is not Subject.TOPIC:
        return None
    of_suffix = (
        isinstance(rule.match, NamePrefix) and rule.template is not None and SUFFIX in rule.template.pieces[1::2]
    )
    return (rule.target_cluster, names_there(rule)) if of_suffix or isinstance(rule.match, ExactName) else None
