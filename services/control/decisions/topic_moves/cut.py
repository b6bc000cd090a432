"""The cut of a move: all gateways hold, the copy reaches the end of the source, and groups get their positions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from mesh.routing import UpstreamCluster
from mesh.rpc import topic_moves
from services.control.decisions.members.rollouts import CutMissedError
from services.control.domain.rules.effects import LogRange
from services.control.upstream.connections import Connections, UnreachableError
from services.control.upstream.groups import GroupRefusedError

LOOK_S = 0.02
"""Seconds between two questions for the ends."""

Positions = Mapping[str, Mapping[int, int]]
"""Group -> partition -> committed offset."""

log = structlog.get_logger(__name__)


class Groups:
    """Gives the groups of a topic the same positions on the target: offsets are the same there.

    A group's offsets are with its topic, so they have to follow it. Gateways do not hold commits. So positions are read
    once before the hold, once within it, and once after the switch for the commits between.
    """

    def __init__(
        self, connections: Connections, move: topic_moves.MoveWithRecords, clusters: Mapping[str, UpstreamCluster]
    ) -> None:
        self._connections = connections
        self._source, self._target = clusters[move.copy.source_cluster], clusters[move.copy.target_cluster]
        self._from, self._to = move.copy.topic, move.copy.target_topic
        self._given: dict[str, Mapping[int, int]] = {}
        self.refused: dict[str, str] = {}
        """Groups whose positions the target does not take, with the reason."""

    async def follow(self) -> None:
        """Sets what has changed since the last call. Raises UnreachableError."""
        found: Positions = (await self._connections.positions(self._source, [self._from]))[self._from]
        for group, positions in found.items():
            if self._given.get(group) != positions:
                await self._set(group, positions)
                self._given[group] = positions

    async def catch_up(self) -> None:
        """After the switch: the commits that came between. A group that has gone on at the target keeps its place."""
        found: Positions = (await self._connections.positions(self._source, [self._from]))[self._from]
        late = {group: positions for group, positions in found.items() if self._given.get(group) != positions}
        if not late:
            return
        there: Positions = (await self._connections.positions(self._target, [self._to], late))[self._to]
        for group, positions in late.items():
            known = there.get(group, {})
            ahead = {number: offset for number, offset in positions.items() if offset > known.get(number, -1)}
            if ahead:
                await self._set(group, ahead)

    async def _set(self, group: str, positions: Mapping[int, int]) -> None:
        wanted = {(self._to, number): offset for number, offset in positions.items()}
        try:
            await self._connections.set_offsets(self._target, group, wanted)
            self.refused.pop(group, None)
        except GroupRefusedError as error:
            self.refused[group] = str(error)
            log.warning("a group gets no position on the target of a move", group=group, reason=str(error))


class TopicCut:
    """One attempt to cut."""

    def __init__(
        self,
        connections: Connections,
        move: topic_moves.MoveWithRecords,
        clusters: Mapping[str, UpstreamCluster],
        partitions: int,
        groups: Groups,
    ) -> None:
        self.budget_s = move.spec.hold_budget_ms / 1000
        self.cuts: list[topic_moves.TopicMoveCut] = []
        self._connections = connections
        self._copy = move.copy
        self._clusters = clusters
        self._partitions = partitions
        self._groups = groups

    async def reach(self) -> None:
        """Returns when both logs end alike and the groups have their positions."""
        try:
            await self._groups.follow()
            while True:
                found = await self._range(self._copy.target_cluster, self._copy.target_topic)
                # a marker may come behind the hold: a commit is answered before its markers are written
                wanted = await self._range(self._copy.source_cluster, self._copy.topic)
                if all(found[number].end == wanted[number].end for number in wanted):
                    break
                await asyncio.sleep(LOOK_S)
        except UnreachableError as error:
            raise CutMissedError(str(error)) from error
        self.cuts = [
            topic_moves.TopicMoveCut(partition=number, start=each.start, end=each.end)
            for number, each in sorted(wanted.items())
        ]

    async def _range(self, cluster: str, topic: str) -> dict[int, LogRange]:
        return (await self._connections.log_ranges(self._clusters[cluster], {topic: self._partitions}))[topic]
