"""Whether the registered clusters answer: control asks every few seconds.

Each request has a time-out, and a slow cluster never delays the requests to other clusters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from prometheus_client import Gauge

from mesh.routing import UpstreamCluster
from services.control.domain.errors import Refusal
from services.control.store.journal import Journal
from services.control.upstream.connections import Connections, SeenCluster, UnreachableError

log = structlog.get_logger(__name__)
reachable = Gauge("kafka_mesh_control_cluster_reachable", "1 when the cluster answered the last time.", ["cluster"])


@dataclass(frozen=True, slots=True)
class Probe:
    """The last check of a cluster; `seen` is the last answer, also when the cluster is unreachable now."""

    reachable: bool
    reason: str
    seen: SeenCluster | None
    at: float


class Probes:
    """The last check of each cluster."""

    def __init__(self, journal: Journal, connections: Connections, interval: float) -> None:
        self._journal = journal
        self._connections = connections
        self._interval = interval
        self._last: dict[str, Probe] = {}

    def last(self, name: str) -> Probe | None:
        return self._last.get(name)

    def unreachable(self) -> dict[str, str]:
        """The clusters that did not answer the last time, with the reason."""
        return {name: probe.reason for name, probe in self._last.items() if not probe.reachable}

    def note(self, name: str, seen: SeenCluster) -> None:
        """Takes an answer that another part of control got."""
        self._last[name] = Probe(True, "", seen, time.monotonic())
        reachable.labels(name).set(1)

    def note_failure(self, name: str, reason: str) -> None:
        before = self._last.get(name)
        self._last[name] = Probe(False, reason, before.seen if before else None, time.monotonic())
        reachable.labels(name).set(0)
        if before is None or before.reachable:
            log.warning("a cluster does not answer", cluster=name, reason=reason)

    def forget(self, name: str) -> None:
        self._last.pop(name, None)
        if name in self._journal.view.state.effective.clusters:
            return
        try:
            reachable.remove(name)
        except KeyError:
            return  # control never checked it

    async def look(self, cluster: UpstreamCluster) -> Probe:
        """Checks a cluster now."""
        before = self._last.get(cluster.name)
        try:
            self.note(cluster.name, await self._connections.describe(cluster))
        except (UnreachableError, Refusal) as error:
            self.note_failure(cluster.name, str(error))
        else:
            if before is not None and not before.reachable:
                log.info("cluster answers again", cluster=cluster.name)
        return self._last[cluster.name]

    async def run(self, learn: Callable[[str, SeenCluster], Awaitable[None]]) -> None:
        """Checks all clusters for ever; `learn` gets each answer."""
        while True:
            clusters = list(self._journal.view.state.effective.clusters.values())
            probes = await asyncio.gather(*(self.look(cluster) for cluster in clusters))
            for cluster, probe in zip(clusters, probes, strict=True):
                if probe.seen is not None:
                    await learn(cluster.name, probe.seen)
            for gone in self._last.keys() - {cluster.name for cluster in clusters}:
                self.forget(gone)
            await asyncio.sleep(self._interval)
