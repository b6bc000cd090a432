"""Rules that can never match, because an earlier rule takes all topics that they could match."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from mesh.routing import ExactName, ForwardingRule, NamePrefix, NameRegex, Subject, UnmatchedTopics
from mesh.routing.clients import implied
from mesh.routing.index import Index
from mesh.routing.living import LivingRules

MATCH_ALL = frozenset({".*", ".+", "(.*)", "(.+)", "^.*$", "^.+$"})
"""Expressions that match every topic name. Control does not try whether other expressions cover each other."""


MOST_HEADS = 50
"""With more heads, a search for rules near them takes longer than a check of all rules."""


def shadowed_rules(rules: Iterable[ForwardingRule]) -> dict[ForwardingRule, ForwardingRule]:
    """Rules that never match, each with the earlier rule that covers it; `rules` are in their order.

    Control does not try whether a rule covers a regular expression.
    """
    by_subject: dict[Subject, list[ForwardingRule]] = {}
    for rule in rules:
        by_subject.setdefault(rule.match.subject, []).append(rule)
    shadowed: dict[ForwardingRule, ForwardingRule] = {}
    for of_one_subject in by_subject.values():
        shadowed |= _shadowed(of_one_subject)
    return shadowed


def near(rules: LivingRules, heads: Collection[str], start: int = 0) -> Sequence[ForwardingRule]:
    """As `LivingRules.near`; with many heads, some rules that match no such name, too."""
    if len(heads) > MOST_HEADS or "" in heads:
        return rules.between(start, len(rules))
    return rules.near(heads, start)


def _shadowed(rules: Iterable[ForwardingRule]) -> dict[ForwardingRule, ForwardingRule]:
    exact: dict[str, list[ForwardingRule]] = {}
    prefixes = _Prefixes()
    regexes = Index[ForwardingRule]((), attrgetter("match"))
    catch_all: list[ForwardingRule] = []
    shadowed: dict[ForwardingRule, ForwardingRule] = {}
    for rule in rules:
        covers: Iterable[ForwardingRule] = ()
        match rule.match:
            case ExactName(topic):
                covers = chain(catch_all, exact.get(topic, ()), prefixes.of(topic), regexes.matching(topic))
            case NamePrefix(prefix):
                covers = chain(catch_all, prefixes.of(prefix))
            case UnmatchedTopics():
                covers = catch_all
            case NameRegex():
                pass
        # a rule about some clients covers no rule about other clients, and no rule about all clients
        cover = next((each for each in covers if implied(rule.match.client, each.match.client)), None)
        if cover is not None:
            shadowed[rule] = cover
        match rule.match:
            case ExactName(topic):
                exact.setdefault(topic, []).append(rule)
            case NamePrefix(prefix):
                prefixes.add(prefix, rule)
            case NameRegex(pattern):
                regexes.add(rule)
                if pattern in MATCH_ALL:
                    catch_all.append(rule)
            case UnmatchedTopics():
                pass
    return shadowed


class _Prefixes:
    """Prefix -> the rules about it. Names are long, and prefixes have few lengths."""

    def __init__(self) -> None:
        self._rules: dict[str, list[ForwardingRule]] = {}
        self._lengths: list[int] = []

    def add(self, prefix: str, rule: ForwardingRule) -> None:
        if len(prefix) not in self._lengths:
            insort(self._lengths, len(prefix))
        self._rules.setdefault(prefix, []).append(rule)

    def of(self, name: str) -> Iterator[ForwardingRule]:
        for length in self._lengths:
            if length > len(name):
                return
            yield from self._rules.get(name[:length], ())
