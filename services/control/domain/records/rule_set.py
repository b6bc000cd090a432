"""The record rule aggregate: create, update, pause, resume, rewind, remove mirrors and content rules.

This module makes the decisions that need no call to a cluster; `checks.py` checks a specification.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mesh.record_rules import RecordRule, RecordRules
from mesh.rpc import events, record_rules
from services.control.domain.errors import Conflict, Exists, InvalidField, NotAllowed, Unknown
from services.control.domain.records.checks import check_spec, check_start, normalised
from services.control.domain.records.flows import clusters_of, flow_of, refuse_loops, written_clusters

MAX_RECORD_RULES = 1000
MAX_GROUPS = 1000
"""Groups that one order names; an order for all groups names none."""


@dataclass(frozen=True, slots=True)
class RecordRuleSet:
    """The record rules in force, and the clusters that they may name."""

    rules: RecordRules
    clusters: Collection[str]

    def get(self, rule_id: str) -> RecordRule:
        if rule_id not in self.rules:
            known = ", ".join(sorted(self.rules)[:20]) or "none"
            raise Unknown(f"recordrules/{rule_id}", f"record rule {rule_id!r} does not exist (known: {known})")
        return self.rules[rule_id]

    def expect(self, rule_id: str, expected: int) -> None:
        """Compare-and-set for one rule; 0 means any."""
        actual = self.get(rule_id).revision
        if expected and expected != actual:
            raise Conflict(
                "REVISION_MISMATCH",
                f"record rule {rule_id!r} is at revision {actual}, not {expected}: read it again and decide anew",
                {"current_revision": str(actual), "expected_revision": str(expected)},
            )

    def create(self, spec: record_rules.RecordRuleSpec) -> events.RecordRuleCreated:
        spec = normalised(spec)
        check_spec(spec, self.clusters)
        rule_id = spec.record_rule_id
        if rule_id in self.rules:
            raise Exists(
                f"recordrules/{rule_id}",
                f"record rule {rule_id!r} exists since revision {self.rules[rule_id].created}; "
                "update it, or choose another id",
            )
        if len(self.rules) >= MAX_RECORD_RULES:
            raise InvalidField("record_rule", f"the mesh has {MAX_RECORD_RULES} of them, and no more are possible")
        self._refuse_loops(spec)
        return events.RecordRuleCreated(rule=spec)

    def update(self, rule_id: str, spec: record_rules.RecordRuleSpec) -> events.RecordRuleUpdated | None:
        """None when nothing changes. The position of the rule stays, so its clusters have to stay, too."""
        known = self.get(rule_id).spec
        spec = normalised(spec)
        spec.record_rule_id = spec.record_rule_id or rule_id
        if spec.record_rule_id != rule_id:
            raise InvalidField(
                "record_rule.record_rule_id",
                f"{spec.record_rule_id!r} is not {rule_id!r}, the rule to update; an id can't change",
            )
        check_spec(spec, self.clusters)
        _refuse_other_ways(known, spec)
        self._refuse_loops(spec)
        return None if spec == known else events.RecordRuleUpdated(rule=spec)

    def pause(self, rule_id: str) -> events.RecordRulePaused | None:
        """None when the rule is paused already."""
        return None if self.get(rule_id).paused else events.RecordRulePaused(record_rule_id=rule_id)

    def resume(self, rule_id: str) -> events.RecordRuleResumed | None:
        """None when the rule runs already."""
        return events.RecordRuleResumed(record_rule_id=rule_id) if self.get(rule_id).paused else None

    def rewind(self, rule_id: str, start: record_rules.StartAt) -> events.RecordRuleRewound:
        check_start("start", start, self.get(rule_id).spec)
        return events.RecordRuleRewound(record_rule_id=rule_id, start=start)

    def remove(self, rule_id: str) -> events.RecordRuleRemoved:
        self.get(rule_id)
        return events.RecordRuleRemoved(record_rule_id=rule_id)

    def sync_groups(self, rule_id: str, groups: Iterable[str]) -> events.GroupOffsetsSyncOrdered:
        rule, wanted = self.get(rule_id), sorted(set(groups))
        name = f"recordrules/{rule_id}"
        if rule.spec.WhichOneof("kind") != "mirror":
            text = f"record rule {rule_id!r} is no mirror: its topics have other offsets for each branch"
            raise NotAllowed("NOT_A_MIRROR", name, text)
        if rule.paused:
            text = f"record rule {rule_id!r} is paused, so nobody would translate; resume it first"
            raise NotAllowed("RECORD_RULE_PAUSED", name, text)
        if len(wanted) > MAX_GROUPS:
            raise InvalidField("groups", f"{len(wanted)} are more than {MAX_GROUPS}; leave them out to mean all")
        if "" in wanted:
            raise InvalidField("groups", "a group id is empty; leave the field out to mean all groups")
        return events.GroupOffsetsSyncOrdered(record_rule_id=rule_id, groups=wanted)

    def users_of(self, cluster: str) -> list[str]:
        """Ids of the rules that read from a cluster or write to it."""
        return sorted(rule_id for rule_id, rule in self.rules.items() if cluster in clusters_of(rule.spec))

    def _refuse_loops(self, spec: record_rules.RecordRuleSpec) -> None:
        others = [rule.spec for rule in self.rules.values() if rule.rule_id != spec.record_rule_id]
        refuse_loops(flow_of(spec), [flow_of(each) for each in others])


def _refuse_other_ways(known: record_rules.RecordRuleSpec, spec: record_rules.RecordRuleSpec) -> None:
    """Positions belong to a source and to each target cluster: a rule between other clusters is another rule."""
    way_out = "its position belongs to them; create another rule and remove this one"
    if known.WhichOneof("kind") != spec.WhichOneof("kind"):
        raise InvalidField("record_rule", f"a {_kind(known)} can't become a {_kind(spec)}; {way_out}")
    before, after = (getattr(each, each.WhichOneof("kind") or "") for each in (known, spec))
    if before.source_cluster != after.source_cluster:
        text = f"can't change from {before.source_cluster!r} to {after.source_cluster!r}: {way_out}"
        raise InvalidField(f"record_rule.{known.WhichOneof('kind')}.source_cluster", text)
    targets, wanted = written_clusters(known), written_clusters(spec)
    if targets != wanted:
        text = f"can't change from {', '.join(sorted(targets))} to {', '.join(sorted(wanted))}: {way_out}"
        raise InvalidField(f"record_rule.{known.WhichOneof('kind')}", f"the clusters that it writes to {text}")


def _kind(spec: record_rules.RecordRuleSpec) -> str:
    return "mirror" if spec.WhichOneof("kind") == "mirror" else "content rule"
