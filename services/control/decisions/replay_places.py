"""Where the topics of copies and profiles are, asked before anything is decided. A cluster that does not answer refuses
nothing: whoever carries the replay out needs it anyway, and waits for it.
"""

from __future__ import annotations

import asyncio

import structlog

from mesh.routing import UpstreamCluster
from mesh.rpc import replays
from services.control.domain.replay_places import check_there, places_of
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)


class ReplayPlaceSearch:
    """Finds them."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections

    async def of(self, spec: replays.ReplaySpec) -> list[replays.ReplayPlace]:
        """What the replay is told; refused where a topic is nowhere, or not on its cluster."""
        table = self._journal.view.state.effective
        places = places_of(spec, table)
        names = sorted(places.clusters)
        answers = await asyncio.gather(*(self._topics(table.clusters[name]) for name in names))
        topics = {name: there for name, there in zip(names, answers, strict=True) if there is not None}
        check_there(spec, places, topics)
        return list(places.to_proto())

    async def _topics(self, cluster: UpstreamCluster) -> dict[str, int] | None:
        try:
            return await self._connections.topics(cluster)
        except UnreachableError as error:
            log.info("a replay's topics are not looked at", cluster=cluster.name, reason=str(error))
            return None
