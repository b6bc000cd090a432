"""Rules that can never match, because an earlier rule takes every topic they could take."""

from __future__ import annotations

from collections.abc import Iterable

from mesh.routing import ExactName, ForwardingRule, NamePrefix, NameRegex, Subject

MATCH_ALL = frozenset({".*", ".+", "(.*)", "(.+)", "^.*$", "^.+$"})
"""Expressions known to match every topic name. Whether one regular expression covers another in general is not
tried.
"""


def shadowed_rules(rules: Iterable[ForwardingRule]) -> dict[ForwardingRule, ForwardingRule]:
    """Exact and prefix rules that never match, each with the earlier rule that covers it; `rules` in their order."""
    by_subject: dict[Subject, list[ForwardingRule]] = {}
    for rule in rules:
        by_subject.setdefault(rule.match.subject, []).append(rule)
    shadowed: dict[ForwardingRule, ForwardingRule] = {}
    for of_one_subject in by_subject.values():
        shadowed |= _shadowed(of_one_subject)
    return shadowed


def _shadowed(rules: Iterable[ForwardingRule]) -> dict[ForwardingRule, ForwardingRule]:
    exact: dict[str, ForwardingRule] = {}
    prefixes: dict[str, ForwardingRule] = {}
    regexes: list[ForwardingRule] = []
    catch_all: ForwardingRule | None = None
    shadowed: dict[ForwardingRule, ForwardingRule] = {}
    for rule in rules:
        cover = catch_all
        match rule.match:
            case ExactName(topic):
                cover = cover or exact.get(topic) or _prefix_of(topic, prefixes)
                cover = cover or next((regex for regex in regexes if regex.match.matches(topic)), None)
                exact.setdefault(topic, rule)
            case NamePrefix(prefix):
                cover = cover or _prefix_of(prefix, prefixes)
                prefixes.setdefault(prefix, rule)
            case NameRegex(pattern):
                cover = None
                regexes.append(rule)
                if pattern in MATCH_ALL and catch_all is None:
                    catch_all = rule
        if cover is not None:
            shadowed[rule] = cover
    return shadowed


def _prefix_of(name: str, prefixes: dict[str, ForwardingRule]) -> ForwardingRule | None:
    for length in range(1, len(name) + 1):
        if (found := prefixes.get(name[:length])) is not None:
            return found
    return None
