"""The smallest set of changes from one ordered list of rules to another, with a rank for each rule that moves.

A rank is a number between those of the neighbours, so that a rule moves without touching the others. When two
neighbours come too close for another number between them, the rules around them are spread anew: first the nearest one
on each side, then twice as many, until they all have room. So a full place costs the ranks of a few rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mesh.order import staying_in_order
from mesh.routing import ForwardingRule, RuleVersion, UnmatchedTopics
from mesh.routing.codec import rule_to_proto
from mesh.routing.living import LivingRules
from mesh.rpc import events

STEP = 1024.0
"""The distance between neighbours in a fresh ranking.

It gives room for ten halvings before digits are lost, and for many more after.
"""
CLOSEST = 1e-6
"""If neighbours are nearer than this, rules around them are spread anew; above the resolution of a double at any rank.
"""
ROOM = 1.0
"""The least distance between rules that are spread anew: room for 20 halvings."""
DEFAULTS_ABOVE = 2.0**30
"""Default clusters are tried last, and have ranks above this; rules have ranks below, with room for a million rules.

So a rule that is added behind all others has room before the default clusters. A default cluster of an earlier release
has a lower rank, until a rule would get the same rank.
"""


def changes_between(
    before: LivingRules, start: int, coming: Sequence[ForwardingRule], stop: int
) -> list[events.RuleChange]:
    """The changes that put the rules that are `coming` in the place of those `before` from `start` to `stop`.

    Rules with one id are the same.
    """
    changes, around = _changes(before, start, coming, stop), 1
    while changes is None:
        first, behind = max(0, start - around), min(len(before), stop + around)
        coming = [*before.between(first, start), *coming, *before.between(stop, behind)]
        start, stop, around = first, behind, 2 * around
        changes = _changes(before, start, coming, stop, spread_anew=True)
    return changes


def _changes(
    before: LivingRules, start: int, coming: Sequence[ForwardingRule], stop: int, *, spread_anew: bool = False
) -> list[events.RuleChange] | None:
    """The same; None if there is no room for new ranks. If all rules may change, there is room: they get fresh ranks.

    `spread_anew`: no rule between start and stop keeps its rank.
    """
    whole = start == 0 and stop == len(before)
    going = before.ordered.between(start, stop)
    old = {version.rule.rule_id: version for version in going}
    wanted = {rule.rule_id for rule in coming}
    changes = [events.RuleChange(removed=rule_id) for rule_id in old if rule_id not in wanted]
    changes += [
        events.RuleChange(updated=rule_to_proto(rule))
        for rule in coming
        if rule.rule_id in old and old[rule.rule_id].rule != rule
    ]
    before_them, behind_them = before.ordered.between(start - 1, start), before.ordered.between(stop, stop + 1)
    ranks: dict[str, float] = {}
    for is_default in (False, True):
        lowest = DEFAULTS_ABOVE if is_default else None
        below, above = _rank_beside(before_them, is_default), _rank_beside(behind_them, is_default)
        order = [rule.rule_id for rule in coming if _is_default(rule) is is_default]
        known = {each: old[each].rank for each in order if each in old}
        if is_default:
            known = {each: rank for each, rank in known.items() if rank > DEFAULTS_ABOVE}
        elif spread_anew:
            known = {}
        found = _ranks(known, order, lowest if below is None else below, above, ROOM if spread_anew else CLOSEST)
        highest = DEFAULTS_ABOVE if whole else _lowest_rank_of_defaults(before)
        if not is_default and found and max(found.values()) >= highest:
            found = None
        if found is None and not whole:
            return None
        ranks |= _fresh(order, lowest or 0.0) if found is None else found
    for rule in coming:
        rank = ranks[rule.rule_id]
        if rule.rule_id not in old:
            changes.append(events.RuleChange(created=rule_to_proto(rule), rank=rank))
        elif old[rule.rule_id].rank != rank:
            changes.append(events.RuleChange(moved=rule.rule_id, rank=rank))
    return changes


def _lowest_rank_of_defaults(before: LivingRules) -> float:
    number = before.kinds.get(UnmatchedTopics, 0)
    defaults = before.ordered.between(len(before) - number, len(before))
    return min((version.rank for version in defaults), default=DEFAULTS_ABOVE)


def _is_default(rule: ForwardingRule) -> bool:
    return isinstance(rule.match, UnmatchedTopics)


def _rank_beside(neighbours: Sequence[RuleVersion], is_default: bool) -> float | None:
    """The rank of the neighbour, if there is one of the same kind: a default cluster, or not."""
    return next((each.rank for each in neighbours if _is_default(each.rule) is is_default), None)


def _ranks(
    known: Mapping[str, float], order: Sequence[str], below: float | None, above: float | None, closest: float
) -> dict[str, float] | None:
    """Ranks between two bounds, in which as many rules as possible keep their rank; None if neighbours would not be
    further apart than `closest`.
    """
    ranks: dict[str, float] = {}
    run: list[str] = []
    for rule_id, stays in zip(order, staying_in_order([known.get(each) for each in order]), strict=True):
        if not stays:
            run.append(rule_id)
            continue
        kept = known[rule_id]
        if not _spread(run, below, kept, ranks, closest):
            return None
        run, below, ranks[rule_id] = [], kept, kept
    return ranks if _spread(run, below, above, ranks, closest) else None


def _fresh(order: Sequence[str], lowest: float) -> dict[str, float]:
    return {each: lowest + STEP * place for place, each in enumerate(order, 1)}


def _spread(run: list[str], below: float | None, above: float | None, ranks: dict[str, float], closest: float) -> bool:
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
    return step > closest
