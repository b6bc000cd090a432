"""The producers of a topic at its cut: control asks the leaders on the source, and the answer goes to the gateways.

A client may send a batch again whose answer was lost. If the topic has moved meanwhile, its gateway has to know which
batches the old cluster has. Each gateway would ask for them behind the switch, under the load of all that has waited.
So control asks once, within the hold, when both logs have reached the same end.

The leaders also tell the ends of their own logs, before and behind that answer. A leader may have records that its
replicas lack, and that readers do not see yet. The copy lacks them too, so the cut waits until both ends are one.

No cut is made without the ends. An answer about producers that does not come within `ANSWER_S` stops no cut: the
gateways ask then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

import structlog

from mesh.routing import UpstreamCluster
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import topic_moves
from mesh.topic_logs.brokers import Brokers, CopySetbackError, LastBatch
from services.control.decisions.members.rollouts import CutMissedError

ANSWER_S: Final = 0.2
"""Seconds of the hold that the leaders get to tell producers: they answer in milliseconds."""
ENDS_S: Final = 1.0
"""Seconds for one question for the ends; the cut's budget bounds all of them."""
CONNECTING_S: Final = 4.0
OF_A_PARTITION: Final = 1000
"""The producers of a partition that wrote last; gateways remember as many. The cut counts those that are left out."""
OF_ALL: Final = 10_000
"""The producers of all partitions: an event of some 250 KB. Partitions beyond that are left out, and gateways ask."""
CLIENT_ID: Final = "mesh.cut"

log = structlog.get_logger(__name__)


class ProducersAtCut:
    """An asynchronous context: its connections are open before a gateway holds. CutMissedError if they can't be."""

    def __init__(self, source: UpstreamCluster, move: topic_moves.MoveWithRecords, partitions: int) -> None:
        self._move = move
        self._topic = move.copy.topic
        self._partitions = range(partitions)
        self._brokers = Brokers(cluster_to_proto(source).spec, CLIENT_ID)
        self._open = AsyncExitStack()
        self._answers = False
        self.told: topic_moves.TopicMoveProducers | None = None
        """As of the last look; None: control does not know them."""
        self.known: dict[int, int] = {}
        """Partition -> the producers that its leader knew at the last look."""

    async def __aenter__(self) -> ProducersAtCut:
        try:
            async with asyncio.timeout(CONNECTING_S):
                await self._open.enter_async_context(self._brokers)
                await self._brokers.partitions(self._topic)
                await self._brokers.leader_ends(self._topic, self._partitions)
        except (CopySetbackError, TimeoutError) as error:
            await self._open.aclose()
            raise CutMissedError(self._silent(error)) from error
        # the leaders of very many partitions take longer, and gateways shall not wait for that
        self._answers = await self._producers(CONNECTING_S) is not None and await self._producers(ANSWER_S) is not None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def look(self, ends: Mapping[int, int]) -> str:
        """Why the cut can't be at `ends`, which readers see; empty if it can. Asks for producers between the ends."""
        found = await self._producers(ANSWER_S) if self._answers else None
        self.told, self.known = None, {}
        try:
            async with asyncio.timeout(ENDS_S):
                leaders = await self._brokers.leader_ends(self._topic, self._partitions)
        except (CopySetbackError, TimeoutError) as error:
            with contextlib.suppress(CopySetbackError, TimeoutError):
                async with asyncio.timeout(ENDS_S):
                    await self._brokers.partitions(self._topic)  # a partition may have another leader
            return self._silent(error)
        further = {number: end for number, end in leaders.items() if end != ends[number]}
        if further:
            number, end = next(iter(further.items()))
            return (
                f"replicas of {len(further)} partitions are behind: the leader of {self._topic}-{number} on "
                f"{self._brokers.name!r} ends at {end}, and readers see it up to {ends[number]}"
            )
        if found is not None:
            self.told, self.known = self._event(found), {number: len(each) for number, each in found.items()}
        return ""

    async def unsettled(self, ends: Mapping[int, int]) -> str:
        """Why a marker may still come behind `ends`, which readers see; empty if no transaction is open."""
        try:
            async with asyncio.timeout(ENDS_S):
                stable = await self._brokers.stable_ends(self._topic, self._partitions)
        except (CopySetbackError, TimeoutError) as error:
            return self._silent(error)
        waiting = [number for number, end in sorted(stable.items()) if end < ends[number]]
        if not waiting:
            return ""
        number = waiting[0]
        return (
            f"a transaction is open in {len(waiting)} partitions: that of {self._topic}-{number} on "
            f"{self._brokers.name!r} begins at {stable[number]}"
        )

    async def _producers(self, seconds: float) -> dict[int, list[LastBatch]] | None:
        try:
            async with asyncio.timeout(seconds):
                told = await self._brokers.producers_of(self._topic, self._partitions)
        except (CopySetbackError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            log.info("the producers of a topic at its cut are not known", move=self._move.name, reason=reason)
            return None
        return {number: [each for each in known if each.sequence >= 0] for number, known in told.items()}

    def _event(self, found: Mapping[int, list[LastBatch]]) -> topic_moves.TopicMoveProducers:
        copy, left = self._move.copy, OF_ALL
        event = topic_moves.TopicMoveProducers(
            topic=self._move.spec.topic, source_cluster=copy.source_cluster, source_topic=copy.topic
        )
        for number, known in sorted(found.items()):
            kept = sorted(known, key=lambda each: -each.timestamp_ms)[:OF_A_PARTITION]
            if len(kept) <= left:
                left -= len(kept)
                producers = [topic_moves.TopicMoveProducer(**each._asdict()) for each in kept]
                event.partitions.add(partition=number, producers=producers)
        return event

    def _silent(self, error: Exception) -> str:
        reason = str(error) or "no answer in time"
        return f"the leaders of {self._topic} on {self._brokers.name!r} do not tell the ends of their logs: {reason}"
