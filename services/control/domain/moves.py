"""Which existing topics a rule change moves, and whether their target can take them.

A topic moves when the cluster it lives on changes. Its target must have it already, with at least as many
partitions: records of a key must find the partition that the client chose. (A client keeps its idea of the
partitions for minutes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mesh.routing import ExactName, ForwardingRule, Match, NamePrefix, RoutingTable
from services.control.domain.errors import NotAllowed

INTERNAL_PREFIX = "__"
"""Kafka's own topics (__consumer_offsets, __transaction_state, ...) belong to their cluster and never move."""
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Move:
    """A topic with `partitions` on `source` lives on `target` after the change; target is None for nowhere."""

    topic: str
    source: str
    target: str | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Checked:
    """Moves whose target can't take the topic as it is."""

    absent: tuple[Move, ...]
    narrow: tuple[tuple[Move, int], ...]
    """With the partitions that the target has."""


def clusters_that_may_lose(before: RoutingTable, after: RoutingTable) -> set[str]:
    """Clusters whose topics have to be looked at; rules that the change can't reach do not count, so that a cluster
    that is down stops only changes that concern it."""
    old, new = before.rules, after.rules
    start = 0
    while start < min(len(old), len(new)) and _same(old[start], new[start]):
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and _same(old[-1 - end], new[-1 - end]):
        end += 1
    kept = {(rule.match, rule.target_cluster) for rule in new[start:]}
    arriving = new[start : len(new) - end]
    losing: set[str] = set()
    for rule in old[start:]:
        if rule.target_cluster in losing:
            continue
        stays = (rule.match, rule.target_cluster) in kept
        if not stays or any(
            other.target_cluster != rule.target_cluster and may_overlap(other.match, rule.match) for other in arriving
        ):
            losing.add(rule.target_cluster)
    return losing & before.clusters.keys()


def may_overlap(one: Match, other: Match) -> bool:
    """Whether a topic could match both; says yes where a regular expression makes it unclear."""
    if one.subject is not other.subject:
        return False
    match one, other:
        case ExactName(topic), _:
            return other.matches(topic)
        case _, ExactName(topic):
            return one.matches(topic)
        case NamePrefix(a), NamePrefix(b):
            return a.startswith(b) or b.startswith(a)
        case _:
            return True


def planned_moves(
    before: RoutingTable, after: RoutingTable, topics: Mapping[str, Mapping[str, int]], *, never: Iterable[str] = ()
) -> list[Move]:
    """Topics that exist where they live now (`topics`: cluster -> topic -> partitions) and live elsewhere
    afterwards.
    """
    fixed = set(never)
    return [
        Move(topic, cluster, after.cluster_of(topic), partitions)
        for cluster, there in topics.items()
        for topic, partitions in sorted(there.items())
        if not topic.startswith(INTERNAL_PREFIX)
        and topic not in fixed
        and before.cluster_of(topic) == cluster
        and after.cluster_of(topic) != cluster
    ]


def checked(moves: Iterable[Move], topics: Mapping[str, Mapping[str, int]]) -> Checked:
    """Sorts out the moves that their targets (`topics` as above) can't take; one without an entry is not judged."""
    absent: list[Move] = []
    narrow: list[tuple[Move, int]] = []
    for move in moves:
        if move.target is None or move.target not in topics:
            continue
        there = topics[move.target].get(move.topic)
        if there is None:
            absent.append(move)
        elif there < move.partitions:
            narrow.append((move, there))
    return Checked(tuple(absent), tuple(narrow))


def refuse_narrow(result: Checked) -> None:
    if result.narrow:
        move, _ = result.narrow[0]
        raise NotAllowed(
            "TARGET_HAS_FEWER_PARTITIONS",
            f"topics/{move.topic}",
            _listed(
                [
                    f"topic {move.topic!r} has {_partitions(move.partitions)} on {move.source!r}, "
                    f"but {there} on {move.target!r}"
                    for move, there in result.narrow
                ]
            )
            + "; add partitions there first",
        )


def refuse_absent(result: Checked) -> None:
    if result.absent:
        move = result.absent[0]
        raise NotAllowed(
            "TARGET_LACKS_TOPIC",
            f"topics/{move.topic}",
            _listed(
                [
                    f"topic {move.topic!r} has {_partitions(move.partitions)} on {move.source!r} "
                    f"and does not exist on {move.target!r}"
                    for move in result.absent
                ]
            )
            + "; create it there with as many, or set create_missing_topics",
        )


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _listed(facts: list[str]) -> str:
    more = f"; and {len(facts) - SHOWN} more" if len(facts) > SHOWN else ""
    return "; ".join(facts[:SHOWN]) + more


def _same(one: ForwardingRule, other: ForwardingRule) -> bool:
    return one.match == other.match and one.target_cluster == other.target_cluster
