"""The smallest set of changes from one ordered list of rules to another, with a rank for each rule that moves.

A rank is a number between those of the neighbours, so that a rule moves without touching the others. When two
neighbours come too close for another number between them, all rules get fresh ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from mesh.order import staying_in_order
from mesh.routing import ForwardingRule, RuleVersion
from mesh.routing.codec import rule_to_proto
from mesh.rpc import events

STEP = 1024.0
"""The distance between neighbours in a fresh ranking.

It gives room for ten halvings before digits are lost, and for many more after.
"""
CLOSEST = 1e-6
"""If neighbours are nearer than this, all rules get fresh ranks; far above the resolution of a double at any rank."""


def changes_between(before: Sequence[RuleVersion], after: Sequence[ForwardingRule]) -> list[events.RuleChange]:
    """The changes that turn the rules in force `before` (in order) into `after`; rules with one id are the same."""
    old = {version.rule.rule_id: version for version in before}
    wanted = {rule.rule_id for rule in after}
    changes = [events.RuleChange(removed=rule_id) for rule_id in old if rule_id not in wanted]
    changes += [
        events.RuleChange(updated=rule_to_proto(rule))
        for rule in after
        if rule.rule_id in old and old[rule.rule_id].rule != rule
    ]
    ranks = _ranks(old, [rule.rule_id for rule in after])
    for rule in after:
        rank = ranks[rule.rule_id]
        if rule.rule_id not in old:
            changes.append(events.RuleChange(created=rule_to_proto(rule), rank=rank))
        elif old[rule.rule_id].rank != rank:
            changes.append(events.RuleChange(moved=rule.rule_id, rank=rank))
    return changes


def _ranks(old: dict[str, RuleVersion], order: list[str]) -> dict[str, float]:
    staying = staying_in_order([old[rule_id].rank if rule_id in old else None for rule_id in order])
    ranks: dict[str, float] = {}
    run: list[str] = []
    below: float | None = None
    for rule_id, stays in zip(order, staying, strict=True):
        if not stays:
            run.append(rule_id)
            continue
        above = old[rule_id].rank
        if not _spread(run, below, above, ranks):
            return {each: STEP * place for place, each in enumerate(order, 1)}
        run, below, ranks[rule_id] = [], above, above
    _spread(run, below, None, ranks)
    return ranks


def _spread(run: list[str], below: float | None, above: float | None, ranks: dict[str, float]) -> bool:
    """Ranks for a run of rules between two rules that stay; False when there is no room."""
    if not run:
        return True
    if below is None and above is None:
        start, step = 0.0, STEP
    elif above is None:
        start, step = below or 0.0, STEP
    elif below is None:
        start, step = above - STEP * (len(run) + 1), STEP
    else:
        start, step = below, (above - below) / (len(run) + 1)
    ranks.update({rule_id: start + step * number for number, rule_id in enumerate(run, 1)})
    return step > CLOSEST
