"""All upstream clusters of the routing table in force, and the door through which plans reach them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from mesh.routing import RoutingTable
from services.gateway import metrics
from services.gateway.authorization.refusals import Refusal
from services.gateway.requests.knowledge import ClusterKnowledge, VersionRange
from services.gateway.requests.plan import Call, Coordinator, Unreachable
from services.gateway.requests.table import served_ranges
from services.gateway.requests.topic_names import TopicNames
from services.gateway.upstream.answer_memory import AnswerRoom
from services.gateway.upstream.awaiting import Settle
from services.gateway.upstream.brokers import UpstreamLimits
from services.gateway.upstream.cluster import Cluster
from services.gateway.upstream.lanes import Lanes
from services.gateway.upstream.shared import Pool

LEAVE_AFTER_S = 60.0
"""How long a cluster that left the table still serves requests that started before."""


class Clusters:
    """Follows the table: `follow` adds, replaces and drops clusters."""

    def __init__(self, limits: UpstreamLimits) -> None:
        self.known: Mapping[str, ClusterKnowledge] = {}
        """By name; replaced, never changed, so that a request keeps the clusters that it started with."""
        self.served: Mapping[int, VersionRange] = {}
        self.answer_room = AnswerRoom(limits.max_gathered_bytes)
        """The memory for answers of clusters that wait for clients."""
        self.on_refused: Callable[[Refusal], None] = lambda _: None
        """Gets what a client was refused because a cluster does not let it in."""
        self._limits = limits
        self._clusters: dict[str, Cluster] = {}
        self._leaving: dict[Cluster, asyncio.Task[None]] = {}
        self._recount()

    def follow(self, table: RoutingTable) -> None:
        """Connect to the clusters of this table, leave the others."""
        for name, spec in table.clusters.items():
            current = self._clusters.get(name)
            if current is not None and current.takes(spec):
                self._stay(current)
                continue
            if current is not None:
                current.give_way()
                self._leave(current)
            self._clusters[name] = Cluster(spec, self._limits, self.answer_room, self._recount)
            self._clusters[name].start()
        for name in self._clusters.keys() - table.clusters.keys():
            self._leave(self._clusters[name])
        self._recount()

    def _stay(self, cluster: Cluster) -> None:
        task = self._leaving.pop(cluster, None)
        if task is not None:
            task.cancel()

    def _leave(self, cluster: Cluster) -> None:
        async def leave() -> None:
            await asyncio.sleep(LEAVE_AFTER_S)
            if self._clusters.get(cluster.name) is cluster:
                del self._clusters[cluster.name]
            self._leaving.pop(cluster, None)
            await cluster.stop()
            if cluster.name not in self._clusters:
                with suppress(KeyError):  # it was never visited
                    metrics.cluster_up.remove(cluster.name)
            self._recount()

        if cluster not in self._leaving:
            self._leaving[cluster] = asyncio.get_running_loop().create_task(leave(), name=f"leave {cluster.name}")

    def _recount(self) -> None:
        self.known = {name: cluster.knowledge for name, cluster in self._clusters.items()}
        self.served = served_ranges(self.known.values())

    async def attempted(self, timeout_s: float) -> None:
        """Wait until every cluster was visited once, reachable or not; at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                for cluster in list(self._clusters.values()):
                    await cluster.attempted.wait()
        except TimeoutError:
            return

    async def stop(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for task in leaving.values():
            task.cancel()
        await asyncio.gather(*leaving.values(), return_exceptions=True)
        await asyncio.gather(*(cluster.stop() for cluster in {*leaving, *self._clusters.values()}))

    # --- for plans -----------------------------------------------------------------------------------------------

    def submit(
        self, call: Call, lanes: Lanes, client_id: str | None, settle: Settle, names: TopicNames | None = None
    ) -> None:
        """`names` is given if the caller has other names for the cluster's topics than the cluster itself."""
        cluster = self._clusters.get(call.cluster)
        if cluster is None:
            settle(Unreachable(call.cluster, "not part of the mesh", never_sent=True), True)
        else:
            cluster.submit(call, lanes, client_id, settle, names)

    def incarnation(self, cluster: str, lanes: Lanes) -> int:
        """Which cluster the name stands for now, and by which identity this client reaches it; 0: none."""
        found = self._clusters.get(cluster)
        return 0 if found is None else found.incarnation(lanes)

    def pool(self, cluster: str, broker_id: int, lanes: Lanes) -> Pool | None:
        """The pool that clients of this broker share, if they do."""
        found = self._clusters.get(cluster)
        return None if found is None else found.pool(broker_id, lanes)

    def refresh(
        self,
        cluster: str,
        topics: tuple[str, ...],
        done: Callable[[Unreachable | None], None],
        names: TopicNames | None = None,
    ) -> None:
        found = self._clusters.get(cluster)
        if found is None:
            done(Unreachable(cluster, "not part of the mesh", never_sent=True))
        else:
            found.refresh(topics, done, names)

    def doubt_topics(self, cluster: str, topics: tuple[str, ...], names: TopicNames | None = None) -> None:
        if cluster in self.known:
            self.known[cluster].doubt(topics if names is None else map(names.upstream, topics))

    def forget_coordinator(self, cluster: str, coordinator: Coordinator) -> None:
        if cluster in self._clusters:
            self._clusters[cluster].forget(coordinator)
