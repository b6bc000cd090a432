"""When the cluster of a topic changed, for any client. Control finds this in the versions of the rules that match it.

A client is bound by the first rule that matches the topic and is about the client. So at each revision, a topic has a
list of rules: the matching rules in their order, up to the first rule that is about every client. Each rule of this
list leads to a place. The decisions that moved the topic are the decisions that changed this list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mesh.routing import ClientMatch, ForwardingRule, Place, RoutingTable, RuleVersion, Subject
from mesh.routing.fold import with_changes
from mesh.rpc import events


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision, in words."""

    event: events.Event
    changes: tuple[str, ...]
    outcome: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Home:
    """The place of a topic for some clients; None for all clients that are in no earlier home of the list."""

    clients: ClientMatch | None
    place: Place


def homes(rules: Iterable[ForwardingRule], topic: str) -> tuple[Home, ...]:
    """The places of a topic by rules in their order; rules that do not match the topic do not count."""
    found: list[Home] = []
    for rule in rules:
        if rule.match.subject is not Subject.TOPIC or not rule.match.matches(topic):
            continue
        found.append(Home(rule.match.client, Place(rule.target_cluster, rule.upstream_name(topic))))
        if rule.match.client is None:
            break
    return _without_idle(found)


def _without_idle(found: Sequence[Home]) -> tuple[Home, ...]:
    """Leaves out conditions that lead to the place of all other clients."""
    kept = list(found)
    while len(kept) > 1 and kept[-1].clients is None and kept[-2].place == kept[-1].place:
        del kept[-2]
    return tuple(kept)


def homes_at(versions: Iterable[RuleVersion], topic: str, revision: int) -> tuple[Home, ...]:
    """The places of a topic at a revision; `versions` are those that may match the topic."""
    return homes(_table(versions, revision).rules, topic)


def homes_if(
    versions: Iterable[RuleVersion], topic: str, revision: int, change: events.RuleSetChanged
) -> tuple[Home, ...]:
    """The places of a topic from a revision on, if the revision's change counted.

    `versions` are those that may match the topic, and those of the rules that the change is about.
    """
    table = _table(versions, revision)
    return homes(with_changes(table, revision, change.changes).rules, topic)


def turning_points(
    versions: Sequence[RuleVersion], topic: str, low: int, high: int
) -> list[tuple[int, tuple[Home, ...]]]:
    """Revisions between `low` and `high` that moved a topic, each with the topic's new places; newest first.

    `versions` are all that may match the topic and were in force from `low` on.
    """
    edges = {edge for each in versions for edge in (each.from_revision, each.until_revision) if edge is not None}
    before = homes_at(versions, topic, low)
    found: list[tuple[int, tuple[Home, ...]]] = []
    for edge in sorted(edge for edge in edges if low < edge < high):
        after = homes_at(versions, topic, edge)
        if after != before:
            found.append((edge, after))
        before = after
    return found[::-1]


def _table(versions: Iterable[RuleVersion], revision: int) -> RoutingTable:
    """The rules at a revision, in the order that a table gives them."""
    living = [RuleVersion(each.rule, each.rank, each.from_revision) for each in versions if each.counts_at(revision)]
    return RoutingTable(revision, (), living)
