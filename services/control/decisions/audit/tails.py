"""Callers that follow audit events of records, over all clusters of the mesh; their number is bounded.

PostgreSQL has no part in this: the view of the log in memory names the clusters, and Kafka holds the events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from prometheus_client import Counter, Gauge

from mesh.rpc import audit
from services.control.domain.errors import Unavailable
from services.control.store.journal import Journal
from services.control.upstream.audit_topics import AuditFollower, Found

MAX_TAILS = 20
"""The most callers of one replica; each needs a thread and a connection for each cluster."""
MAX_WAITING = 2
"""The most batches of all clusters that wait for one caller."""
LOOK_SECONDS = 5.0
"""The longest time in seconds until a caller follows a new cluster, too."""

tails_gauge = Gauge("kafka_mesh_control_audit_tails", "Callers that follow audit events of records.")
tailed_total = Counter(
    "kafka_mesh_control_audit_tailed_total", "Audit events of records given to those who follow them."
)


class AuditTails:
    """All callers of this replica."""

    def __init__(self, journal: Journal, topics: Sequence[str]) -> None:
        self._journal = journal
        self._topics = topics
        self._open = 0

    async def follow(self, request: audit.TailAuditRequest) -> AsyncGenerator[audit.TailAuditResponse]:
        """New events until the caller goes, or has all that it asked for. Unavailable when too many callers follow."""
        if self._open >= MAX_TAILS:
            raise Unavailable("TOO_MANY_TAILS", f"{self._open} callers follow audit events here; end one of them")
        self._open += 1
        tails_gauge.set(self._open)
        try:
            async with contextlib.aclosing(self._found(request)) as news:
                async for each in news:
                    yield each
        finally:
            self._open -= 1
            tails_gauge.set(self._open)

    async def _found(self, request: audit.TailAuditRequest) -> AsyncGenerator[audit.TailAuditResponse]:
        news: asyncio.Queue[Found] = asyncio.Queue(MAX_WAITING)
        given = ended = 0
        followed: set[str] = set()
        with contextlib.ExitStack() as followers:
            while True:
                for cluster in self._journal.view.state.effective.clusters.values():
                    if cluster.name not in followed:
                        followed.add(cluster.name)
                        followers.enter_context(AuditFollower(cluster, self._topics, request, news.put))
                if request.stop_at_end and ended == len(followed):
                    return
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        found = await news.get()
                except TimeoutError:
                    continue
                ended += found.is_last
                if found.source is not None:
                    yield audit.TailAuditResponse(source=found.source)
                for event in found.events:
                    yield audit.TailAuditResponse(record=event)
                    tailed_total.inc()
                    given += 1
                    if given == request.limit:
                        return
