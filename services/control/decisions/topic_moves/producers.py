"""The producers of a topic at its cut: control asks the leaders on the source, and the answer goes to the gateways.

A client may send a batch again whose answer was lost. If the topic has moved meanwhile, its gateway has to know which
batches the old cluster has. Each gateway would ask for them behind the switch, under the load of all that has waited.
So control asks once, within the hold, when both logs have reached the same end.

The leaders also tell the ends of their own logs. A leader may have records that its replicas lack, and that readers do
not see yet. The copy lacks them too, so the cut waits for them. An answer that does not come within `ANSWER_S` stops no
cut: the gateways ask then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

import structlog

from mesh.routing import UpstreamCluster
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import topic_moves
from mesh.topic_logs.brokers import Brokers, CopySetbackError, LastBatch

ANSWER_S: Final = 0.2
"""Seconds of the hold that the leaders get: they answer in milliseconds."""
CONNECTING_S: Final = 4.0
OF_A_PARTITION: Final = 1000
"""The producers of a partition that wrote last; gateways remember as many."""
OF_ALL: Final = 10_000
"""The producers of all partitions: an event of some 250 KB. Partitions beyond that are left out."""
CLIENT_ID: Final = "mesh.cut"

log = structlog.get_logger(__name__)


class ProducersAtCut:
    """An asynchronous context: its connections are open before a gateway holds."""

    def __init__(self, source: UpstreamCluster, move: topic_moves.MoveWithRecords, partitions: int) -> None:
        self._move = move
        self._partitions = range(partitions)
        self._brokers = Brokers(cluster_to_proto(source).spec, CLIENT_ID)
        self._open = AsyncExitStack()
        self._answers = False
        self.told: topic_moves.TopicMoveProducers | None = None
        """As of the last look; None: control does not know them."""

    async def __aenter__(self) -> ProducersAtCut:
        try:
            async with asyncio.timeout(CONNECTING_S):
                await self._open.enter_async_context(self._brokers)
                await self._brokers.partitions(self._move.copy.topic)
                await self._ask()
            # the leaders of very many partitions take longer, and gateways shall not wait for that
            async with asyncio.timeout(ANSWER_S):
                await self._ask()
        except (CopySetbackError, TimeoutError) as error:
            self._unknown(error)
        else:
            self._answers = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def look(self, ends: Mapping[int, int]) -> dict[int, int]:
        """Asks for the producers. Returns the ends of the leaders' logs that are behind `ends`, which readers see."""
        self.told = None
        if not self._answers:
            return {}
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await self._ask()
        except (CopySetbackError, TimeoutError) as error:
            self._unknown(error)
            return {}
        further = {number: end for number, (_, end) in found.items() if end != ends[number]}
        if not further:
            self.told = self._event({number: producers for number, (producers, _) in found.items()})
        return further

    async def _ask(self) -> dict[int, tuple[list[LastBatch], int]]:
        return dict(zip(self._partitions, await asyncio.gather(*map(self._of, self._partitions)), strict=True))

    async def _of(self, number: int) -> tuple[list[LastBatch], int]:
        """The producers first: if the log ends where it ended before, nobody has written meanwhile."""
        topic = self._move.copy.topic
        return await self._brokers.producers(topic, number), await self._brokers.leader_end(topic, number)

    def _event(self, found: Mapping[int, list[LastBatch]]) -> topic_moves.TopicMoveProducers:
        copy, left = self._move.copy, OF_ALL
        event = topic_moves.TopicMoveProducers(
            topic=self._move.spec.topic, source_cluster=copy.source_cluster, source_topic=copy.topic
        )
        for number, known in found.items():
            newest = sorted((each for each in known if each.sequence >= 0), key=lambda each: -each.timestamp_ms)
            kept = newest[:OF_A_PARTITION]
            if len(kept) <= left:
                left -= len(kept)
                producers = [topic_moves.TopicMoveProducer(**each._asdict()) for each in kept]
                event.partitions.add(partition=number, producers=producers)
        return event

    def _unknown(self, error: Exception) -> None:
        reason = str(error) or "no answer in time"
        log.info("the producers of a topic at its cut are not known", move=self._move.name, reason=reason)
