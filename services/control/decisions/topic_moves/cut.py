"""The cut of a move: all gateways hold, the copy reaches the end of the source, and groups get their positions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice

import structlog

from mesh import durations
from mesh.routing import RoutingTable, UpstreamCluster
from mesh.rpc import events, topic_moves
from services.control.decisions.members.rollouts import CutMissedError
from services.control.decisions.topic_moves.producers import OF_A_PARTITION, ProducersAtCut
from services.control.decisions.topic_moves.share_groups import ShareGroups, ShareGroupsOfParts
from services.control.domain.topic_moves.two_cuts import parts_of, stitches_next
from services.control.upstream.connections import Connections, UnreachableError, connection_settings
from services.control.upstream.groups import GroupRefusedError
from services.control.upstream.kept_texts import with_texts
from services.control.upstream.member_offsets import MemberOffsets
from services.control.upstream.offsets import Position, Positions, StablePositions

LOOK_S = 0.02
"""Seconds between two questions for the ends."""
FOLLOWS = 3
"""Times that the groups' positions are given before a hold: most have theirs then, and the hold is short."""
MOST_TOLD = 1000
"""Positions in one event."""
NONE = Position(-1)
NAMED = 3
"""Groups that a message names."""

log = structlog.get_logger(__name__)


class Groups:
    """Gives the groups of a topic the same positions on the target: offsets are the same there.

    A group's offsets are with its topic, so they have to follow it. Gateways hold commits as they hold Produce. So what
    the source says within the hold is the last word, and the target has to say the same before the switch. Groups whose
    home keeps the offsets of all topics have them there before and after.
    """

    def __init__(self, connections: Connections, move: topic_moves.MoveWithRecords, table: RoutingTable) -> None:
        self._connections = connections
        self._table = table
        self._source, self._target = table.clusters[move.copy.source_cluster], table.clusters[move.copy.target_cluster]
        self._from, self._to = move.copy.topic, move.copy.target_topic
        transactional_id = f"mesh.move.{move.name.rpartition('/')[2]}"
        self._members = MemberOffsets(connection_settings(self._target), transactional_id)
        sides = (self._source, self._from), (self._target, self._to)
        self._shares = (
            ShareGroupsOfParts(*sides, self._moves, self._bases)
            if stitches_next(move)
            else ShareGroups(*sides, self._moves)
        )
        self.refused: dict[str, str] = {}
        """Groups whose positions the target did not take at the last attempt, with the reason."""
        self.before: Positions = {}
        """The positions at the source, as of the last look."""
        self.after: Positions = {}
        """The positions of the same groups at the target."""

    async def follow(self) -> bool:
        """Sets what differs. True if nothing did. Raises UnreachableError."""
        positions, shares = await asyncio.gather(self._follow_positions(), self._shares.follow())
        self.refused |= self._shares.refused
        return positions and shares

    async def _follow_positions(self) -> bool:
        found = await self._positions(self._source, self._from)
        before = {group: each for group, each in found.by_group.items() if self._moves(group)}
        there = await self._positions(self._target, self._to, before) if before else None
        after: dict[str, dict[int, Position]] = {} if there is None else there.by_group
        self.before, self.after = before, {group: after.get(group, {}) for group in before}
        open_here = {group for group in found.unstable if self._moves(group)}
        self.refused = dict.fromkeys(open_here, "its offsets are in a transaction that has not ended")
        late = {group: wanted for group, each in before.items() if (wanted := _missing(each, self.after[group]))}
        await asyncio.gather(*(self._set(group, wanted) for group, wanted in late.items()))
        return not late and not open_here

    async def _positions(
        self, cluster: UpstreamCluster, topic: str, of: Collection[str] | None = None
    ) -> StablePositions:
        found = await self._connections.stable_positions(cluster, topic, of)
        moving = {group for group in found.with_text if self._moves(group)}
        return await with_texts(cluster, topic, found, moving)

    @property
    def problem(self) -> str:
        """The groups without their positions, with the reasons; empty if there are none."""
        named = [f"group {name!r} gets no position: {why}" for name, why in sorted(self.refused.items())[:NAMED]]
        more = len(self.refused) - len(named)
        return "; ".join([*named, *([f"{more} more groups"] if more else [])])

    def told(self) -> list[topic_moves.TopicMovePosition]:
        """The positions on both sides, for the log of events."""
        every = (
            topic_moves.TopicMovePosition(
                group=group, partition=number, before=each.offset, after=self.after[group].get(number, NONE).offset
            )
            for group, positions in sorted(self.before.items())
            for number, each in sorted(positions.items())
        )
        return list(islice(every, MOST_TOLD))

    async def _bases(self) -> dict[int, int]:
        """The ends of the target, at which the next part of a stitched log begins."""
        count = await self._connections.partitions_of(self._target, self._to)
        return await self._connections.log_ends(self._target, self._to, count or 0)

    def _moves(self, group: str) -> bool:
        rule = self._table.group_rule(group)
        return rule is None or not rule.shadow_topics

    async def _set(self, group: str, positions: Mapping[int, Position]) -> None:
        try:
            await self._connections.set_positions(self._target, group, self._to, positions, self._members)
        except GroupRefusedError as error:
            self.refused[group] = f"{self._target.name!r} refuses it: {error}"
            log.warning("a group gets no position on the target of a move", group=group, reason=str(error))


def _missing(wanted: Mapping[int, Position], there: Mapping[int, Position]) -> dict[int, Position]:
    return {number: each for number, each in wanted.items() if there.get(number) != each}


class TopicCut:
    """One attempt to cut."""

    def __init__(
        self,
        connections: Connections,
        move: topic_moves.MoveWithRecords,
        table: RoutingTable,
        starts: Mapping[int, int],
        groups: Groups,
        producers: ProducersAtCut,
        record: Callable[[events.TopicMoveCutReached], Awaitable[None]],
    ) -> None:
        """`starts`: the first offset of each partition of the source; `record`: writes the cut into the log."""
        self.budget_s = durations.whole_ms(move.spec.hold_budget) / 1000
        self._name = move.name
        self._record = record
        self._cuts: list[topic_moves.TopicMoveCut] = []
        self._connections = connections
        self._copy = move.copy
        self._clusters = table.clusters
        self._starts = starts
        self._groups = groups
        self._producers = producers
        parts = parts_of(move)
        self._shifts = dict(enumerate(parts[-1].shifts)) if parts else dict.fromkeys(starts, 0)
        """The offset in the copy, less the offset on the source."""
        self._behind = ""

    async def reach(self) -> None:
        """Returns when both logs end alike and the groups have their positions."""
        try:
            ends_ms, positions_ms = await asyncio.gather(timed(self._reach_end()), timed(self._reach_positions()))
        except UnreachableError as error:
            raise CutMissedError(str(error)) from error
        reached = events.TopicMoveCutReached(
            name=self._name, cuts=self._cuts, positions=self._groups.told(), producers=self._producers.told
        )
        stored_ms = await timed(self._record(reached))
        log.info("a cut is reached", move=self._name, ends_ms=ends_ms, positions_ms=positions_ms, stored_ms=stored_ms)

    @property
    def lacks(self) -> str:
        """The condition that the cut still waits for."""
        return "; ".join(each for each in (self._behind, self._groups.problem) if each)

    async def _reach_end(self) -> None:
        copy = self._copy
        while True:
            found = await self._ends(copy.target_cluster, copy.target_topic)
            # a marker may come behind the hold: a commit is answered before its markers are written
            wanted = await self._ends(copy.source_cluster, copy.topic)
            behind = [number for number in sorted(wanted) if found[number] != wanted[number] + self._shifts[number]]
            if behind:
                number = behind[0]
                end = wanted[number] + self._shifts[number]
                self._behind = (
                    f"the copy of {len(behind)} partitions is behind: {copy.topic}-{number} ends at {end} on "
                    f"{copy.source_cluster!r}, and at {found[number]} on {copy.target_cluster!r}"
                )
            else:
                self._behind = await self._producers.look(wanted)
            if not self._behind:
                break
            await asyncio.sleep(LOOK_S)
        self._cuts = [
            topic_moves.TopicMoveCut(
                partition=number,
                start=self._starts[number],
                end=end,
                producers=self._producers.known.get(number),
                producers_left_out=max(0, self._producers.known.get(number, 0) - OF_A_PARTITION),
                client_offset=end + self._shifts[number] if self._copy.parts else 0,
            )
            for number, end in sorted(wanted.items())
        ]

    async def _reach_positions(self) -> None:
        while not await self._groups.follow():
            await asyncio.sleep(LOOK_S)

    async def _ends(self, cluster: str, topic: str) -> dict[int, int]:
        return await self._connections.log_ends(self._clusters[cluster], topic, len(self._starts))


async def timed(step: Awaitable[None]) -> int:
    """The milliseconds that a step of the cut takes."""
    began = time.monotonic()
    await step
    return round(1000 * (time.monotonic() - began))
