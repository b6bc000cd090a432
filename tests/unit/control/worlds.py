"""Small worlds for tests of the domain, written the way people write rules: "apples->c1", "ap*->c2", "~a.+->c1".

"apples->c1:fruit.{topic}" gives topics another name on c1; "group:shop*->c1" is about groups. "apples@shop*->c1" is
about clients whose client id begins with shop, "apples@10.0.0.0/8->c1" about those of a network; "?->c1" is about
topics that no other rule matches.
"""

from __future__ import annotations

from typing import Any

from mesh.routing import (
    ClientMatch,
    ExactName,
    ForwardingRule,
    Match,
    NamePrefix,
    NameRegex,
    RoutingTable,
    RuleVersion,
    Subject,
    UnmatchedTopics,
    UpstreamCluster,
)
from mesh.routing.fold import with_changes
from services.control.domain.rules.ranks import STEP
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision

SUBJECTS = {"group": Subject.GROUP, "txn": Subject.TRANSACTIONAL_ID, "client": Subject.CLIENT_SOFTWARE}


def match(text: str) -> Match:
    said, _, whom = text.partition("@")
    about, _, name = said.rpartition(":")
    subject = SUBJECTS[about] if about else Subject.TOPIC
    asked = clients(whom) if whom else None
    if name == "?":
        return UnmatchedTopics(asked)
    if name.startswith("~"):
        return NameRegex(name[1:], subject, asked)
    return NamePrefix(name[:-1], subject, asked) if name.endswith("*") else ExactName(name, subject, asked)


def clients(text: str) -> ClientMatch:
    if "/" in text:
        return ClientMatch(source_networks=(text,))
    return ClientMatch(client_id_prefix=text[:-1]) if text.endswith("*") else ClientMatch(client_id=text)


def rule(text: str, rule_id: str = "", **fields: Any) -> ForwardingRule:
    pattern, _, where = text.partition("->")
    target, _, upstream_topic = where.partition(":")
    return ForwardingRule(rule_id, match(pattern), target, upstream_topic=upstream_topic, **fields)


def table(*rules: str, clusters: tuple[str, ...] = ("c1", "c2", "c3"), ranks: tuple[float, ...] = ()) -> RoutingTable:
    """Rules get the ids r1, r2, ... in their order."""
    known = [UpstreamCluster(name, (f"{name}:9092",), number) for number, name in enumerate(clusters, 1)]
    places = ranks or tuple(STEP * number for number in range(1, len(rules) + 1))
    versions = [
        RuleVersion(rule(text, f"r{number}"), rank, from_revision=1)
        for number, (text, rank) in enumerate(zip(rules, places, strict=True), 1)
    ]
    return RoutingTable(7, known, versions)


def rule_set(*rules: str, ranks: tuple[float, ...] = ()) -> RuleSet:
    return RuleSet(table(*rules, ranks=ranks), revision=7)


def written(rules: RoutingTable) -> list[str]:
    """The rules of a table, as `rule` reads them."""
    marks = {ExactName: "{0.text}", NamePrefix: "{0.text}*", NameRegex: "~{0.text}", UnmatchedTopics: "?"}
    return [f"{marks[type(each.match)].format(each.match)}->{each.target_cluster}" for each in rules.rules]


def after(decision: RuleSetDecision) -> list[str]:
    """The rules after a decision, as the fold of its event makes them."""
    assert decision.event is not None
    return written(with_changes(decision.before, 8, decision.event.changes))


def kinds(decision: RuleSetDecision) -> list[str]:
    """What the event is made of: created, updated, moved, removed."""
    assert decision.event is not None
    return [str(change.WhichOneof("kind")) for change in decision.event.changes]
