"""Expressions that take topics from rules behind them.

No program can decide in general whether one expression covers a rule for ever. This module decides it for the topics
that exist today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from mesh.routing import ExactName, ForwardingRule, NamePrefix, NameRegex, RoutingTable, Subject
from mesh.routing.clients import implied
from mesh.routing.living import LivingRules
from services.control.domain.rules.checks import INTERNAL_PREFIX
from services.control.domain.rules.kinds import Window
from services.control.domain.rules.shadows import near

SHOWN = 5
MOST_SUSPICIONS = 200
"""Suspicions of one change; control checks each of them with all topics."""
MOST_PAIRS = 200_000
"""Pairs of rules that control tries for one change: a command may replace all rules of a mesh."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An expression that may take all topics of a rule behind it."""

    regex: ForwardingRule
    behind: ForwardingRule


@dataclass(frozen=True, slots=True)
class Cover:
    """An expression that takes all topics of a rule behind it."""

    regex: ForwardingRule
    behind: ForwardingRule
    topics: tuple[str, ...]

    def __str__(self) -> str:
        shown = ", ".join(self.topics[:SHOWN]) + (", ..." if len(self.topics) > SHOWN else "")
        count = "the only topic" if len(self.topics) == 1 else f"all {len(self.topics)} topics"
        return (
            f"rule {self.behind.rule_id!r} ({self.behind.match}) decides about no topic that there is today: rule "
            f"{self.regex.rule_id!r} ({self.regex.match}) comes first and takes {count} that it matches ({shown}); "
            f"place it before {self.regex.rule_id!r} if that is not meant"
        )


def suspicions(before: RoutingTable, after: RoutingTable) -> list[Suspicion]:
    """Pairs of an expression and a rule behind it, if the change adds, changes or moves one of the two."""
    rules = after.living_rules
    if not rules.kinds.get(NameRegex):
        return []
    tried = islice(_pairs(Window.between(before, after).new, rules), MOST_PAIRS)
    found = dict.fromkeys(Suspicion(regex, rule) for regex, rule in tried if _may_cover(regex, rule))
    return sorted(islice(found, MOST_SUSPICIONS), key=lambda each: _order(each.behind, rules))


def _pairs(changed: Iterable[ForwardingRule], rules: LivingRules) -> Iterator[tuple[ForwardingRule, ForwardingRule]]:
    """Each changed rule with the expressions before it, or with the rules behind it if it is an expression."""
    for rule in changed:
        if isinstance(rule.match, ExactName | NamePrefix):
            yield from ((each, rule) for each in _expressions_before(_order(rule, rules), rules))
        elif isinstance(rule.match, NameRegex):
            version = rules.get(rule.rule_id)
            start = 0 if version is None else rules.place_of(version) + 1
            behind = near(rules, {rule.match.head}, start)
            yield from ((rule, each) for each in behind if isinstance(each.match, ExactName | NamePrefix))


def _expressions_before(order: tuple[bool, float], rules: LivingRules) -> Iterator[ForwardingRule]:
    return (each.rule for each in takewhile(lambda version: version.order < order, rules.expressions))


def _order(rule: ForwardingRule, rules: LivingRules) -> tuple[bool, float]:
    version = rules.get(rule.rule_id)
    assert version is not None, "a living rule"
    return version.order


def _may_cover(regex: ForwardingRule, rule: ForwardingRule) -> bool:
    head = regex.match.head
    return (
        regex.match.subject is rule.match.subject is Subject.TOPIC
        and implied(rule.match.client, regex.match.client)
        and (rule.match.head.startswith(head) or head.startswith(rule.match.head))
    )


def covers(suspected: Sequence[Suspicion], table: RoutingTable, topics: Mapping[str, Iterable[str]]) -> list[Cover]:
    """The suspicions that are true. `topics`: cluster -> topics there, of the clusters that have reported them."""
    names = _names(table, topics)
    mine = {each.behind: tuple(filter(each.behind.match.matches, names)) for each in suspected}
    found = {
        each.behind: Cover(each.regex, each.behind, mine[each.behind])
        for each in reversed(suspected)
        if mine[each.behind] and all(map(each.regex.match.matches, mine[each.behind]))
    }
    return list(islice(reversed(found.values()), SHOWN))


def _names(table: RoutingTable, topics: Mapping[str, Iterable[str]]) -> list[str]:
    """The names of topics for clients. A topic to which no name leads yet has its cluster's name for it."""
    found = {
        table.virtual_topic(cluster, topic) or topic
        for cluster, there in topics.items()
        for topic in there
        if not topic.startswith(INTERNAL_PREFIX)
    }
    return sorted(found)
