"""What a change of the rules moves, and what that means: a look at the clusters concerned, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from mesh.routing import Place, RoutingTable, UpstreamCluster
from services.control.domain.effects import (
    Effect,
    Fate,
    LogRange,
    OffsetKeepers,
    effects_of,
    places_of_danger,
    refuse_skips,
)
from services.control.domain.errors import NotAllowed, Unavailable
from services.control.domain.moves import (
    Move,
    checked,
    clusters_that_may_lose,
    planned_moves,
    refuse_absent,
    refuse_narrow,
)
from services.control.domain.rules import RuleSetDecision
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)

T = TypeVar("T")
Committed = Mapping[str, Mapping[int, int]]
"""Group -> partition -> offset."""


@dataclass(frozen=True, slots=True)
class ChangeWishes:
    """How a change is wanted (ChangeOptions of the contract)."""

    expected_revision: int = 0
    validate_only: bool = False
    create_missing_topics: bool = False
    allow_unreachable: bool = False
    accept_skip: bool = False
    without_members: frozenset[str] = frozenset()
    """Gateways that do not answer and without which topics move."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Topics that move, those of them that are to be created on their target, and what it means."""

    moves: Sequence[Move] = ()
    absent: Sequence[Move] = ()
    effects: Sequence[Effect] = ()


class Scout:
    """Looks at clusters for decisions about moves. `never_move`: the mesh's own log stays, whatever the rules say."""

    def __init__(self, connections: Connections, never_move: Sequence[str]) -> None:
        self._connections = connections
        self._never_move = never_move

    async def look(self, decision: RuleSetDecision, wishes: ChangeWishes) -> Moving:
        """What the decision moves; refused when that can't be, or would harm readers."""
        before, after = decision.before, decision.after
        losing = clusters_that_may_lose(before, after)
        topics = await self._topics(before, losing, "topics that may move away from it", wishes)
        moves = planned_moves(before, after, topics, never=self._never_move)
        if not moves:
            return Moving()
        targets = {move.target.cluster for move in moves if move.target is not None}
        topics |= await self._topics(after, targets - topics.keys(), "topics that move to it", wishes)
        result = checked(moves, topics)
        refuse_narrow(result)
        if not wishes.create_missing_topics:
            refuse_absent(result)
        effects = await self._effects(decision, moves, topics, wishes)
        if not wishes.accept_skip and not wishes.validate_only:
            refuse_skips(effects)
        return Moving(moves, result.absent, effects)

    async def create(self, table: RoutingTable, absent: Sequence[Move]) -> None:
        """Creates topics on their targets, like they are on their sources."""
        by_pair: dict[tuple[str, str], list[tuple[Place, Place, int]]] = {}
        for move in absent:
            if move.target is not None:
                pair = (move.source.cluster, move.target.cluster)
                by_pair.setdefault(pair, []).append((move.source, move.target, move.partitions))
        for (source, target), places in by_pair.items():
            names = [there.upstream_topic for _, there, _ in places]
            try:
                settings = await self._connections.topic_settings(
                    table.clusters[source], [here.upstream_topic for here, _, _ in places]
                )
                wanted = {
                    there.upstream_topic: (partitions, settings[here.upstream_topic])
                    for here, there, partitions in places
                }
                await self._connections.create_topics(table.clusters[target], wanted)
            except UnreachableError as error:
                raise NotAllowed(
                    "TOPIC_NOT_CREATED",
                    f"clusters/{target}",
                    f"topics {', '.join(names)} could not be created on {target!r}: {error}; "
                    "create them there, then retry",
                ) from None
            log.info("created topics", topics=names, source=source, target=target)

    async def _effects(
        self,
        decision: RuleSetDecision,
        moves: Sequence[Move],
        topics: Mapping[str, Mapping[str, int]],
        wishes: ChangeWishes,
    ) -> list[Effect]:
        """A dry run tells all that groups will see; the change itself asks for groups only where one may be harmed."""
        if wishes.accept_skip and not wishes.validate_only:
            return []
        clusters = {**decision.before.clusters, **decision.after.clusters}
        logs = await self._logs(clusters, moves, topics, wishes)
        asked = places_of_danger(moves, logs)
        if wishes.validate_only:
            asked = {move.source for move in moves if any(log.end for log in logs.get(move.source, {}).values())}
        keepers = OffsetKeepers(decision.before)
        places = {place for move in moves if move.source in asked for place in keepers.places(move)}
        positions = await self._positions(clusters, places, None, wishes)
        effects = effects_of(moves, keepers, logs, positions, {})
        # a group that seems to skip may have read the new log to this place before: its offsets there tell
        skips = [
            effect for effect in effects if effect.fate is Fate.SILENT_SKIP and keepers.home_of(effect.group) is None
        ]
        if not skips:
            return effects
        targets = {effect.move.target for effect in skips if effect.move.target is not None}
        there = await self._positions(clusters, targets, {effect.group for effect in skips}, wishes)
        return effects_of(moves, keepers, logs, positions, there)

    async def _topics(
        self, table: RoutingTable, names: Iterable[str], what: str, wishes: ChangeWishes
    ) -> dict[str, dict[str, int]]:
        """What is on the clusters."""
        questions = {name: self._connections.topics(table.clusters[name]) for name in sorted(names)}
        return await _answers(questions, what, wishes)

    async def _logs(
        self,
        clusters: Mapping[str, UpstreamCluster],
        moves: Iterable[Move],
        topics: Mapping[str, Mapping[str, int]],
        wishes: ChangeWishes,
    ) -> dict[Place, Mapping[int, LogRange]]:
        """What lies in the logs before and after; nothing in those that are yet to be created."""
        places = {place for move in moves for place in (move.source, move.target) if place is not None}
        known = {place: topics[place.cluster].get(place.upstream_topic) for place in places if place.cluster in topics}
        wanted: dict[str, dict[str, int]] = {}
        for (cluster, topic), partitions in known.items():
            if partitions is not None:
                wanted.setdefault(cluster, {})[topic] = partitions
        questions = {name: self._connections.log_ranges(clusters[name], there) for name, there in wanted.items()}
        found = await _answers(questions, "logs of topics that move", wishes)
        logs: dict[Place, Mapping[int, LogRange]] = {place: {} for place, count in known.items() if count is None}
        return logs | {Place(cluster, topic): log for cluster, there in found.items() for topic, log in there.items()}

    async def _positions(
        self,
        clusters: Mapping[str, UpstreamCluster],
        places: Iterable[Place],
        groups: Collection[str] | None,
        wishes: ChangeWishes,
    ) -> dict[Place, Committed]:
        """Committed offsets of the groups (of all, for None)."""
        wanted: dict[str, list[str]] = {}
        for cluster, topic in places:
            wanted.setdefault(cluster, []).append(topic)
        questions = {name: self._connections.positions(clusters[name], there, groups) for name, there in wanted.items()}
        found = await _answers(questions, "groups that read topics that move", wishes)
        return {Place(cluster, topic): by for cluster, there in found.items() for topic, by in there.items()}


async def _answers(questions: Mapping[str, Coroutine[Any, Any, T]], what: str, wishes: ChangeWishes) -> dict[str, T]:
    """What the clusters answer; one that does not refuses the change, or is left out where that is wished."""
    answers = await asyncio.gather(*questions.values(), return_exceptions=True)
    found: dict[str, T] = {}
    for name, answer in zip(questions, answers, strict=True):
        if isinstance(answer, UnreachableError):
            if wishes.allow_unreachable:
                log.warning("rules change unchecked", cluster=name, what=what, reason=str(answer))
                continue
            raise Unavailable(
                "CLUSTER_UNREACHABLE",
                f"{answer}; the {what} can't be checked, so the rules stay as they are; "
                "to change them unchecked set allow_unreachable",
                {"cluster": name},
            )
        if isinstance(answer, BaseException):
            raise answer
        found[name] = answer
    return found
