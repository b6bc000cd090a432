"""The places of the topics of copies and profiles; control asks for them before it decides anything.

A cluster that does not answer refuses nothing. The member that carries the replay out needs the cluster anyway, and
waits for it.
"""

from __future__ import annotations

import asyncio

import structlog

from mesh.routing import UpstreamCluster
from mesh.rpc import replays
from services.control.domain.replays.places import check_there, places_of
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)


class ReplayPlaceSearch:
    """Finds the places."""

    def __init__(self, journal: Journal, connections: Connections) -> None:
        self._journal = journal
        self._connections = connections

    async def of(self, spec: replays.ReplaySpec) -> list[replays.ReplayPlace]:
        """The places for the replay; refused if a topic has no place, or does not exist on its cluster."""
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
            log.info(
                "control accepts a replay without a check of its topics, as their cluster does not answer",
                cluster=cluster.name,
                reason=str(error),
            )
            return None
