"""Topics that moves leave behind: control deletes a tail, and an old log if the operator wants it, when it may go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from mesh.routing import Place
from mesh.rpc import events, topic_moves
from services.control.decisions.leading import looks
from services.control.domain.errors import Refusal
from services.control.domain.topic_moves.two_cuts import leftovers, places_of
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 5.0
"""Seconds between two looks."""

log = structlog.get_logger(__name__)


class Leftovers:
    """Deletes topics behind moves that have ended."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._connections = connections

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads. Control asks a cluster that is away again later."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            for move in self._journal.view.topic_moves.ended.values():
                view = self._journal.view
                busy = {place for each in view.topic_moves.open.values() for place in places_of(each.copy)}
                for place in leftovers(move, view.state.effective, busy, self.clock()):
                    with contextlib.suppress(Refusal, StoreUnavailableError, TimeoutError, UnreachableError):
                        await self._delete(move, place)

    async def _delete(self, move: topic_moves.MoveWithRecords, place: Place) -> None:
        """A topic that is gone already counts as deleted."""
        view = self._journal.view
        cluster = view.state.effective.clusters[place.cluster]
        if await self._connections.partitions_of(cluster, place.upstream_topic) is not None:
            await self._connections.delete_topics(cluster, [place.upstream_topic])
        gone = topic_moves.TopicMoveLeftover(cluster_name=place.cluster, topic=place.upstream_topic)
        await self._journal.append(
            [Draft(move.name, events.TopicMoveLeftoversDeleted(name=move.name, topics=[gone]))],
            Caller(CONTROL),
            view,
            rests_on=lambda view: view.topic_moves.ended.get(move.name),
        )
        log.info("a topic behind a move is deleted", move=move.name, cluster=place.cluster, topic=place.upstream_topic)
