"""The old logs of topics that have moved: control sees who writes on to one, while producers may still try again.

A gateway that a cut was made without, or a client that speaks to the old cluster itself, may write to the old log
behind the cut. The mesh can't stop such a writer. The new log lacks these records, so control tells them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from mesh.rpc import events, topic_moves
from services.control.decisions.leading import looks
from services.control.domain.errors import Refusal
from services.control.domain.topic_moves.moves import grown, to_watch
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 5.0
"""Seconds between two checks of the old logs."""

log = structlog.get_logger(__name__)


class OldLogs:
    """Watches the old logs of the moves that are done."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._connections = connections

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads. Control asks a cluster that is away again later."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            view = self._journal.view
            for move in to_watch(view.topic_moves, view.state.effective, self.clock()):
                with contextlib.suppress(Refusal, StoreUnavailableError, TimeoutError, UnreachableError):
                    await self._check(move)

    async def _check(self, move: topic_moves.MoveWithRecords) -> None:
        view = self._journal.view
        source, topic = view.state.effective.clusters[move.copy.source_cluster], move.copy.topic
        strays = grown(move, await self._connections.log_ends(source, topic, len(move.cuts)))
        if not strays:
            return
        await self._journal.append(
            [Draft(move.name, events.TopicMoveOldLogGrown(name=move.name, strays=strays))],
            Caller(CONTROL),
            view,
            rests_on=lambda view: view.topic_moves.ended.get(move.name),
        )
        log.warning(
            "the old log of a topic that has moved grows",
            move=move.name,
            cluster=source.name,
            topic=topic,
            records=sum(each.end - each.start for each in strays),
        )
