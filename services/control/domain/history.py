"""When a topic came to live where, for any client: told from the versions of the rules that match it.

A client is bound by the first rule that matches and is about it. So where a topic lives is, at each revision, a list:
the rules that match it in their order, up to the first that is about every client, each with the place to which it
leads. The decisions that changed where the topic lives are those that changed this list.
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
    """A place, and the clients for whom a topic lives there; None for all that no home before is for."""

    clients: ClientMatch | None
    place: Place


def homes(rules: Iterable[ForwardingRule], topic: str) -> tuple[Home, ...]:
    """Where a topic lives by rules in their order; those that match nothing of it do not count."""
    found: list[Home] = []
    for rule in rules:
        if rule.match.subject is not Subject.TOPIC or not rule.match.matches(topic):
            continue
        found.append(Home(rule.match.client, Place(rule.target_cluster, rule.upstream_name(topic))))
        if rule.match.client is None:
            break
    return _without_idle(found)


def _without_idle(found: Sequence[Home]) -> tuple[Home, ...]:
    """Leaves out conditions that lead to the very place where all others go anyway."""
    kept = list(found)
    while len(kept) > 1 and kept[-1].clients is None and kept[-2].place == kept[-1].place:
        del kept[-2]
    return tuple(kept)


def homes_at(versions: Iterable[RuleVersion], topic: str, revision: int) -> tuple[Home, ...]:
    """Where a topic lived at a revision; `versions` are those that may match it."""
    return homes(_table(versions, revision).rules, topic)


def homes_if(
    versions: Iterable[RuleVersion], topic: str, revision: int, change: events.RuleSetChanged
) -> tuple[Home, ...]:
    """Where a topic would live from a revision on, if its change counted. `versions` are those that may match it, and
    those of the rules that the change is about.
    """
    table = _table(versions, revision)
    return homes(with_changes(table, revision, change.changes).rules, topic)


def turning_points(
    versions: Sequence[RuleVersion], topic: str, low: int, high: int
) -> list[tuple[int, tuple[Home, ...]]]:
    """Revisions between `low` and `high` from which a topic lived elsewhere, with where; newest first. `versions` are
    all that may match it and were in force from `low` on.
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


def place_text(of: Sequence[Home], topic: str) -> str:
    """ "c1", "c1/upstream-name"; where it depends on the client: "c2 for principal User:ada, c1 for others"."""
    texts = [
        f"{_place(home.place, topic)} for {home.clients}" if home.clients is not None else _place(home.place, topic)
        for home in of
    ]
    if len(of) > 1 and of[-1].clients is None:
        texts[-1] += " for others"
    return ", ".join(texts)


def _place(place: Place, topic: str) -> str:
    return place.cluster if place.upstream_topic == topic else f"{place.cluster}/{place.upstream_topic}"


def _table(versions: Iterable[RuleVersion], revision: int) -> RoutingTable:
    """The rules at a revision, in the order that a table gives them."""
    living = [RuleVersion(each.rule, each.rank, each.from_revision) for each in versions if each.counts_at(revision)]
    return RoutingTable(revision, (), living)
