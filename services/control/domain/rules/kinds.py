"""The kinds of clients for which control checks a change of the rules.

A topic may move for some clients and stay for others, if rules have conditions about clients.

Theory of operation
1. A *kind* is what control knows of a client: a condition, or two that hold together. None stands for a client of which
   control knows nothing. `RoutingTable.for_clients(kind)` is the table that such a client sees.
2. A topic that moves for any client moves for one of these kinds. Say a rule decides about the topic before the
   change, and another rule afterwards. Then the topic moves for each client that fulfils both conditions. No more need
   be known: rules with more conditions have not decided for that client, and rules with fewer conditions were there.
3. At least one of the two rules has changed. So the kinds are the conditions of changed rules, each also together with
   each other condition. To these come all conditions that imply a changed condition. If a rule about all clients has
   changed, every condition is a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mesh.routing import ClientMatch, ForwardingRule, Match, RoutingTable, Subject
from mesh.routing.clients import implied
from mesh.routing.living import LivingRules
from services.control.domain.rules.shadows import near

Kind = ClientMatch | None
KINDS_LOOKED_AT = 100
"""Kinds of one change: control checks each kind with all topics of the clusters concerned."""
PAIRS_TRIED = 20_000


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of clients to check, in order: first the kinds of which control knows least."""

    looked_at: tuple[Kind, ...]
    left_out: int = 0
    """The least number of further kinds."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the rules about topics that a change reaches: all rules before this part are the same."""

    old: tuple[ForwardingRule, ...]
    """The rules that are removed, or get another place."""
    new: tuple[ForwardingRule, ...]
    """The rules that are added, or get another place."""
    amid: tuple[ForwardingRule, ...]
    """The unchanged rules between changed rules, in the order that they keep among themselves."""
    known: LivingRules
    """The rules before the change."""
    stop: int
    """The place among them behind the last changed rule: the rules from there on are the same."""

    @classmethod
    def between(cls, before: RoutingTable, after: RoutingTable) -> Window:
        was, now = before.living_rules, after.living_rules
        first, last = was.ordered.alike(now.ordered)
        stop = len(was) - last
        old, new = (
            [rule for rule in rules.between(first, len(rules) - last) if rule.match.subject is Subject.TOPIC]
            for rules in (was, now)
        )
        start, shorter = 0, min(len(old), len(new))
        while start < shorter and same_decision(old[start], new[start]):
            start += 1
        end = 0
        while end < shorter - start and same_decision(old[-1 - end], new[-1 - end]):
            end += 1
        going, coming = old[start : len(old) - end], new[start : len(new) - end]
        staying = {decision_of(rule) for rule in going} & {decision_of(rule) for rule in coming}
        stay = [rule for rule in going if decision_of(rule) in staying]
        if [decision_of(rule) for rule in coming if decision_of(rule) in staying] != [decision_of(r) for r in stay]:
            return cls(tuple(going), tuple(coming), tuple(old[len(old) - end :]), was, stop)
        return cls(
            tuple(rule for rule in going if decision_of(rule) not in staying),
            tuple(rule for rule in coming if decision_of(rule) not in staying),
            (*stay, *old[len(old) - end :]),
            was,
            stop,
        )

    @property
    def changed(self) -> tuple[ForwardingRule, ...]:
        return (*self.old, *self.new)

    def met(self) -> Iterator[ForwardingRule]:
        """The unchanged rules behind the first changed rule that may share a name with a new rule."""
        yield from self.amid
        found = near(self.known, {rule.match.head for rule in self.new}, self.stop) if self.new else ()
        yield from (rule for rule in found if rule.match.subject is Subject.TOPIC)


def same_decision(one: ForwardingRule, other: ForwardingRule) -> bool:
    return one is other or decision_of(one) == decision_of(other)


def decision_of(rule: ForwardingRule) -> tuple[Match, str, str]:
    """The parts of a rule about topics that can move a topic."""
    return rule.match, rule.target_cluster, rule.upstream_topic


def kinds_of_clients(before: RoutingTable, after: RoutingTable) -> Kinds:
    """The kinds of clients for whom topics may move."""
    versions = (*before.living_rules.about_some, *after.living_rules.about_some)
    conditions = _conditions(version.rule for version in versions)
    if not conditions:
        return Kinds((None,))
    changed: set[Kind] = {rule.match.client for rule in Window.between(before, after).changed}
    found: dict[Kind, None] = dict.fromkeys([None] if None in changed else [])
    concerned = (each for each in conditions if any(implied(each, other) for other in changed))
    found.update(dict.fromkeys(concerned))
    tries = 0
    for one in changed - {None}:
        for other in conditions:
            tries += 1
            if tries > PAIRS_TRIED or len(found) > KINDS_LOOKED_AT:
                break
            both = None if one is None else one.both(other)
            if both is not None:
                found.setdefault(both)
    kinds = tuple(found)
    return Kinds(kinds[:KINDS_LOOKED_AT], max(0, len(kinds) - KINDS_LOOKED_AT) + (tries > PAIRS_TRIED))


def _conditions(rules: Iterable[ForwardingRule]) -> list[ClientMatch]:
    given = (rule.match.client for rule in rules if rule.match.subject is Subject.TOPIC)
    return list(dict.fromkeys(each for each in given if each is not None))
