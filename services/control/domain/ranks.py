"""The smallest set of changes from one ordered list of rules to another, with a rank for each rule that moves.

A rank is a number between those of the neighbours, so that a rule moves without touching the others. When two
neighbours come too close for another number between them, all rules get fresh ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from mesh.order import staying_in_order
from mesh.routing import ForwardingRule, RuleVersion, UnmatchedTopics
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
        if rule.rule_id in old and old[rule.rule_id].rule is not rule and old[rule.rule_id].rule != rule
    ]
    ranks = _ranks_within_groups(before, after, old)
    for rule in after:
        rank = ranks[rule.rule_id]
        if rule.rule_id not in old:
            changes.append(events.RuleChange(created=rule_to_proto(rule), rank=rank))
        elif old[rule.rule_id].rank != rank:
            changes.append(events.RuleChange(moved=rule.rule_id, rank=rank))
    return changes


def _ranks_within_groups(
    before: Sequence[RuleVersion], after: Sequence[ForwardingRule], old: dict[str, RuleVersion]
) -> dict[str, float]:
    """Ranks of rules and of default clusters apart: a default cluster is tried last, whatever its rank is."""
    old_ids, new_ids = list(old), [rule.rule_id for rule in after]
    old_end = _without_defaults([version.rule for version in reversed(before)])
    new_end = _without_defaults([*reversed(after)])
    if old_end == len(before) and new_end == len(after):
        return _ranks(old, new_ids)
    others, defaults = ({each: old[each] for each in ids} for ids in (old_ids[:old_end], old_ids[old_end:]))
    return _ranks(others, new_ids[:new_end]) | _ranks(defaults, new_ids[new_end:])


def _without_defaults(backwards: Sequence[ForwardingRule]) -> int:
    """How many rules come before the default clusters."""
    defaults = takewhile(lambda rule: isinstance(rule.match, UnmatchedTopics), backwards)
    return len(backwards) - sum(1 for _ in defaults)


def _ranks(old: dict[str, RuleVersion], order: list[str]) -> dict[str, float]:
    start, end = _alike(list(old), order)
    ranks = {rule_id: old[rule_id].rank for rule_id in (*order[:start], *order[end:])}
    between = order[start:end]
    run: list[str] = []
    below = ranks[order[start - 1]] if start else None
    for rule_id, stays in zip(between, staying_in_order([_rank(old, each) for each in between]), strict=True):
        if not stays:
            run.append(rule_id)
            continue
        above = old[rule_id].rank
        if not _spread(run, below, above, ranks):
            return _fresh(order)
        run, below, ranks[rule_id] = [], above, above
    return ranks if _spread(run, below, ranks.get(order[end]) if end < len(order) else None, ranks) else _fresh(order)


def _alike(old: list[str], new: list[str]) -> tuple[int, int]:
    """The part of the new order that differs from the old one: all before and behind it is the same in both."""
    shorter = min(len(old), len(new))
    start = next((place for place in range(shorter) if old[place] != new[place]), shorter)
    left = shorter - start
    behind = next((place for place in range(left) if old[-1 - place] != new[-1 - place]), left)
    return start, len(new) - behind


def _rank(old: dict[str, RuleVersion], rule_id: str) -> float | None:
    return old[rule_id].rank if rule_id in old else None


def _fresh(order: list[str]) -> dict[str, float]:
    return {each: STEP * place for place, each in enumerate(order, 1)}


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
