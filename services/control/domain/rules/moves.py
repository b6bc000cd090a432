"""Which existing topics a rule change moves, and whether their target can take them.

A topic moves when its cluster changes, or its name on that cluster. The target must already have the topic, with at
least as many partitions: records of a key must find the partition that the client chose. (A client keeps its list of
the partitions for minutes.) This module names topics on clusters by their names there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mesh.routing import ExactName, ForwardingRule, Match, NamePrefix, Place, RoutingTable, Subject
from mesh.routing.clients import implied
from services.control.domain.errors import NotAllowed
from services.control.domain.rules.checks import INTERNAL_PREFIX
from services.control.domain.rules.kinds import Kind, Window, decision_of, kinds_of_clients

SHOWN = 20
FEW = 20
"""The most changed rules that control tries one by one before it looks a topic up in the table."""


@dataclass(frozen=True, slots=True)
class Move:
    """A topic with `partitions` at `source` is at `target` after the change; target is None for no place."""

    topic: str
    source: Place
    target: Place | None
    partitions: int
    client: Kind = None
    """The move is only for clients of this kind. None: for all clients that have no rule of their own."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Moves whose target can't take the topic as it is."""

    absent: tuple[Move, ...] = ()
    narrow: tuple[tuple[Move, int], ...] = ()
    """Each move with the number of partitions that the target has."""


def clusters_that_may_lose(before: RoutingTable, after: RoutingTable) -> set[str]:
    """Clusters whose topics control has to check.

    Rules that the change can't reach do not count, so a cluster that is down stops only changes that concern it.
    """
    window = Window.between(before, after)
    arriving = window.new
    # a rule that renames may take from clients the name that a topic has now, wherever either rule stands
    renamed = {rule.target_cluster for rule in arriving if rule.template is not None}
    versions = before.living_rules.ordered if renamed else ()
    losing = renamed & {each.rule.target_cluster for each in versions if each.rule.match.subject is Subject.TOPIC}
    kept = {decision_of(rule) for rule in arriving}
    losing |= {rule.target_cluster for rule in window.old if decision_of(rule) not in kept}
    for rule in (*window.old, *window.met()):
        if rule.target_cluster not in losing and any(_may_take_from(other, rule) for other in arriving):
            losing.add(rule.target_cluster)
    return losing & before.clusters.keys()


def _may_take_from(arriving: ForwardingRule, rule: ForwardingRule) -> bool:
    elsewhere = (arriving.target_cluster, arriving.upstream_topic) != (rule.target_cluster, rule.upstream_topic)
    return elsewhere and may_overlap(arriving.match, rule.match)


def may_overlap(one: Match, other: Match) -> bool:
    """Whether a topic could match both rules, for the same client; True if a regular expression makes it unclear."""
    if one.subject is not other.subject or (one.client and other.client and one.client.both(other.client) is None):
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
    """Existing topics whose place differs before and after the change, for some clients at least.

    `topics`: cluster -> topic there -> partitions.
    """
    plan = MovePlan(before, after, topics, never=never)
    for kind in kinds_of_clients(before, after).looked_at:
        plan.look_at(kind)
    return plan.moves


class MovePlan:
    """The moves as in `planned_moves`, for one kind of clients after the other."""

    def __init__(
        self,
        before: RoutingTable,
        after: RoutingTable,
        topics: Mapping[str, Mapping[str, int]],
        *,
        never: Iterable[str] = (),
    ) -> None:
        self._before = before
        self._after = after
        self._reach = _Reach.of(before, after)
        fixed = set(never)
        self._topics = {
            cluster: {
                topic: partitions
                for topic, partitions in sorted(there.items())
                if not topic.startswith(INTERNAL_PREFIX) and topic not in fixed
            }
            for cluster, there in topics.items()
        }
        self._moves: dict[tuple[str, Place, Place | None], list[Move]] = {}

    @property
    def moves(self) -> list[Move]:
        """The moves for all kinds. A move that a more general kind has is not repeated for a narrower kind."""
        return [move for alike in self._moves.values() for move in alike]

    def look_at(self, kind: Kind) -> None:
        old, new = self._before.for_clients(kind), self._after.for_clients(kind)
        for cluster, there in self._topics.items():
            renames = old.renames(cluster)
            for upstream_topic, partitions in there.items():
                if not renames and not self._reach.has(upstream_topic):
                    continue
                topic = old.virtual_topic(cluster, upstream_topic)
                if topic is None:
                    continue
                source, route = Place(cluster, upstream_topic), new.route(topic)
                target = None if route is None else Place(route.cluster, route.upstream_topic)
                if target == source:
                    continue
                alike = self._moves.setdefault((topic, source, target), [])
                if not any(implied(kind, known.client) for known in alike):
                    alike.append(Move(topic, source, target, partitions, kind))


@dataclass(frozen=True, slots=True)
class _Reach:
    """The topics that a change can reach: if few rules changed, the topics that match one of them."""

    matches: tuple[Match, ...] | None
    """None: any topic."""

    @classmethod
    def of(cls, before: RoutingTable, after: RoutingTable) -> _Reach:
        changed = Window.between(before, after).changed
        if len(changed) > FEW or any(rule.template is not None for rule in changed):
            return cls(None)
        return cls(tuple(rule.match for rule in changed))

    def has(self, topic: str) -> bool:
        return self.matches is None or any(match.matches(topic) for match in self.matches)


def checked(moves: Iterable[Move], topics: Mapping[str, Mapping[str, int]]) -> Checked:
    """Finds the moves that their targets (`topics` as above) can't take. A cluster without an entry is not checked."""
    absent: list[Move] = []
    narrow: list[tuple[Move, int]] = []
    for move in moves:
        if move.target is None or move.target.cluster not in topics:
            continue
        there = topics[move.target.cluster].get(move.target.upstream_topic)
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
            listed(
                [
                    f"topic {move.topic!r} has {partitions(move.partitions)} {located(move.topic, move.source)}, "
                    f"but {there} {located(move.topic, move.target)}{for_whom(move)}"
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
            listed(
                [
                    f"topic {move.topic!r} has {partitions(move.partitions)} {located(move.topic, move.source)} "
                    f"and does not exist {located(move.topic, move.target)}{for_whom(move)}"
                    for move in result.absent
                ]
            )
            + "; create it there with as many, or set create_missing_topics",
        )


def for_whom(move: Move) -> str:
    """ ", for clients with ..." for the end of a sentence about a move; empty if the move is for all clients."""
    return "" if move.client is None else f", for clients with {move.client}"


def located(topic: str, place: Place | None) -> str:
    """ "on 'c1'", with the topic's name there if that name differs."""
    if place is None:
        return "nowhere"
    name = "" if place.upstream_topic == topic else f" as {place.upstream_topic!r}"
    return f"on {place.cluster!r}{name}"


def partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def listed(facts: list[str]) -> str:
    more = f"; and {len(facts) - SHOWN} more" if len(facts) > SHOWN else ""
    return "; ".join(facts[:SHOWN]) + more
