"""Why a topic goes where it goes, as sentences: each rule tried, in order, up to the one that decides."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.routing import ExactName, ForwardingRule, NamePrefix, RoutingTable, Subject


@dataclass(frozen=True, slots=True)
class Tried:
    """A rule that was tried for a topic."""

    rule: ForwardingRule
    matched: bool
    reason: str


def tried_rules(table: RoutingTable, topic: str) -> list[Tried]:
    """Rules in the order tried; the last one matched, unless none did."""
    tried: list[Tried] = []
    for rule in table.rules:
        if rule.match.subject is not Subject.TOPIC:
            continue
        matched = rule.match.matches(topic)
        tried.append(Tried(rule, matched, _reason(rule, topic, matched)))
        if matched:
            break
    return tried


def _reason(rule: ForwardingRule, topic: str, matched: bool) -> str:
    match rule.match:
        case ExactName(name):
            return f"the topic is {name!r}" if matched else f"the topic is not {name!r}"
        case NamePrefix(prefix):
            return f"the topic begins with {prefix!r}" if matched else f"the topic does not begin with {prefix!r}"
        case regex:
            return f"the whole name matches {regex.text!r}" if matched else f"the name does not match {regex.text!r}"
