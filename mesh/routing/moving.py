"""Whether a change of the rules may move topics, so that gateways have to hold them."""

from __future__ import annotations

from mesh.routing.rules import ForwardingRule, Match, Subject
from mesh.routing.table import RoutingTable


def may_move_topics(before: RoutingTable, after: RoutingTable) -> bool:
    """Whether the change could give any topic another cluster or another name, for any client.

    A rule's conditions about clients are part of its match.

    Exact for the common case, a rule added behind all others, and careful otherwise: a hold costs milliseconds,
    a wrong "no" costs records.
    """
    was, now = before.living_rules, after.living_rules
    first, last = was.ordered.alike(now.ordered)
    old, new = ([r for r in rules.between(first, len(rules) - last) if _is_about_topics(r)] for rules in (was, now))
    if len(new) < len(old) or any(_moving(one) != _moving(other) for one, other in zip(old, new, strict=False)):
        return True
    behind = was.ordered.behind(len(was) - last)
    if len(new) > len(old) and any(_is_about_topics(version.rule) for version in behind):
        return True
    # a rule that renames takes the cluster's own name of a topic away from clients, wherever it stands in the order
    renaming = {rule.target_cluster for rule in new[len(old) :] if rule.template is not None}
    versions = was.ordered if renaming else ()
    return any(each.rule.target_cluster in renaming and _is_about_topics(each.rule) for each in versions)


def _is_about_topics(rule: ForwardingRule) -> bool:
    return rule.match.subject is Subject.TOPIC


def _moving(rule: ForwardingRule) -> tuple[Match, str, str]:
    return rule.match, rule.target_cluster, rule.upstream_topic
