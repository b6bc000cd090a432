"""The cut of a stitched move: all gateways hold, the source has its end, and the log gets one more part.

The ends of the source are final when its leaders and its readers agree on them, and no transaction is open: a marker
would come behind the end. The event of the cut and the change of the log are one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import structlog

from mesh import durations
from mesh.routing import Place, RoutingState, Stay
from mesh.rpc import events, topic_moves
from services.control.decisions.members.rollouts import CutMissedError
from services.control.decisions.topic_moves.cut import LOOK_S, Groups, timed
from services.control.decisions.topic_moves.producers import OF_A_PARTITION, ProducersAtCut
from services.control.domain.errors import Refusal
from services.control.domain.stitches.logs import check_target, continued, identify, in_force, log_of, set_to
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)


class StitchedCut:
    """One attempt to cut."""

    def __init__(
        self,
        connections: Connections,
        move: topic_moves.MoveWithRecords,
        state: Callable[[], RoutingState],
        starts: Mapping[int, int],
        groups: Groups,
        producers: ProducersAtCut,
        record: Callable[[events.TopicMoveCutReached, events.StitchedLogsChanged], Awaitable[None]],
        clock: Callable[[], datetime],
    ) -> None:
        """`starts`: the first offset of each partition of the source; `record`: writes the cut into the log."""
        self.budget_s = durations.whole_ms(move.spec.hold_budget) / 1000
        self._connections = connections
        self._move = move
        self._state = state
        self._starts = starts
        self._groups = groups
        self._producers = producers
        self._record = record
        self._clock = clock
        self._behind = ""
        self._ids: dict[str, dict[str, bytes]] = {}
        """The ids of the topics of both sides, by cluster."""

    async def reach(self) -> None:
        """Returns when the source has its end, the groups have their positions, and the log has its next part."""
        ends: dict[int, int] = {}
        try:
            ends_ms, positions_ms, _ = await asyncio.gather(
                timed(self._reach_ends(ends)), timed(self._reach_positions()), self._find_ids()
            )
            stored_ms = await timed(self._store(ends))
        except (UnreachableError, Refusal) as error:
            raise CutMissedError(str(error)) from error
        log.info(
            "a cut is reached", move=self._move.name, ends_ms=ends_ms, positions_ms=positions_ms, stored_ms=stored_ms
        )

    @property
    def lacks(self) -> str:
        """The condition that the cut still waits for."""
        return "; ".join(each for each in (self._behind, self._groups.problem) if each)

    async def _reach_ends(self, ends: dict[int, int]) -> None:
        source = self._state().effective.clusters[self._move.copy.source_cluster]
        while True:
            ends |= await self._connections.log_ends(source, self._move.copy.topic, len(self._starts))
            self._behind = await self._producers.look(ends) or await self._producers.unsettled(ends)
            if not self._behind:
                return
            await asyncio.sleep(LOOK_S)

    async def _reach_positions(self) -> None:
        while not await self._groups.follow():
            await asyncio.sleep(LOOK_S)

    async def _find_ids(self) -> None:
        copy, clusters = self._move.copy, self._state().effective.clusters
        sides = (copy.source_cluster, copy.topic), (copy.target_cluster, copy.target_topic)
        told = await asyncio.gather(
            *(self._connections.topic_ids(clusters[cluster], [topic]) for cluster, topic in sides)
        )
        self._ids = {cluster: found for (cluster, _), found in zip(sides, told, strict=True)}

    async def _store(self, ends: Mapping[int, int]) -> None:
        copy, topic = self._move.copy, self._move.spec.topic
        target = Place(copy.target_cluster, copy.target_topic)
        table = self._state().effective
        logs = await self._connections.log_ranges(table.clusters[target.cluster], {target.upstream_topic: len(ends)})
        there, route = logs[target.upstream_topic], table.route(topic)
        check_target(topic, () if route is None else in_force(log_of(table, topic), route.stay), target, there)
        bases = {number: each.end for number, each in there.items()}
        after = continued(table, topic, self._next_stay(), ends, bases, self._clock())
        identify(after, self._ids)
        known = self._producers.known
        cuts = [
            topic_moves.TopicMoveCut(
                partition=number,
                start=self._starts[number],
                end=ends[number],
                producers=known.get(number),
                producers_left_out=max(0, known.get(number, 0) - OF_A_PARTITION),
                base=bases[number],
                client_offset=each.start,
            )
            for number, each in enumerate(after.parts[-1].partitions)
        ]
        reached = events.TopicMoveCutReached(
            name=self._move.name, cuts=cuts, positions=self._groups.told(), producers=self._producers.told
        )
        await self._record(reached, set_to(topic, after))

    def _next_stay(self) -> Stay:
        """The stay that the switch begins, as all gateways will count it."""
        pending = self._state().pending
        route = None if pending is None else pending.route(self._move.spec.topic)
        if route is None or route.cluster != self._move.copy.target_cluster:
            raise CutMissedError("the change of the rules was given up meanwhile")
        return route.stay
