"""ClusterService: upstream clusters of the mesh."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from mesh import durations
from mesh.routing.codec import cluster_to_proto
from mesh.rpc import admin, admin_grpc, events, routing
from services.control.api import pages, shapes
from services.control.api.calls import caller, once, once_with_revision
from services.control.decisions.answers import stored_response
from services.control.decisions.clusters.commands import AnswerCluster, ClusterDecisions
from services.control.decisions.clusters.probes import Probe
from services.control.domain.errors import InvalidField
from services.control.domain.rules.checks import INTERNAL_PREFIX
from services.control.domain.view import MeshView
from services.control.store.drafts import Caller
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

ClusterEvent = events.ClusterRegistered | events.ClusterUpdated


class ClusterService(admin_grpc.ClusterServiceServicer):
    """See ClusterService in admin.proto."""

    def __init__(self, journal: Journal, decisions: ClusterDecisions) -> None:
        self._journal = journal
        self._decisions = decisions
        self._probes = decisions.probes

    async def ListClusters(self, request: admin.ListClustersRequest, context: Any) -> admin.ListClustersResponse:
        self._journal.require_loaded()
        clusters = list(self._journal.view.state.effective.clusters.values())  # by ordinal
        keys = [f"{cluster.ordinal:010}" for cluster in clusters]
        page, token = pages.cut("clusters", clusters, keys, request.page_size, request.page_token)
        return admin.ListClustersResponse(
            clusters=[self._shape(cluster.name) for cluster in page], next_page_token=token
        )

    async def GetCluster(self, request: admin.GetClusterRequest, context: Any) -> admin.Cluster:
        self._journal.require_loaded()
        name = shapes.id_of("clusters", request.name)
        self._decisions.clusters.get(name)
        return self._shape(name)

    async def RegisterCluster(self, request: admin.RegisterClusterRequest, context: Any) -> admin.Cluster:
        self._journal.require_loaded()
        return await self._changed(
            request,
            request.spec.cluster_name,
            lambda who, answer: self._decisions.register(
                request.spec,
                who,
                allow_unreachable=request.allow_unreachable,
                validate_only=request.validate_only,
                answer=answer,
            ),
        )

    async def UpdateCluster(self, request: admin.UpdateClusterRequest, context: Any) -> admin.Cluster:
        self._journal.require_loaded()
        name = shapes.id_of("clusters", request.name)
        return await self._changed(
            request,
            name,
            lambda who, answer: self._decisions.update(
                name,
                request.spec,
                [path.removeprefix("spec.") for path in request.update_mask.paths],
                who,
                expected_revision=request.expected_revision,
                allow_unreachable=request.allow_unreachable,
                validate_only=request.validate_only,
                answer=answer,
            ),
        )

    async def SetClusterIdentity(self, request: admin.SetClusterIdentityRequest, context: Any) -> admin.Cluster:
        self._journal.require_loaded()
        name = shapes.id_of("clusters", request.name)
        return await self._changed(
            request, name, lambda who, answer: self._decisions.set_identity(request, name, who, answer)
        )

    async def TestCluster(self, request: admin.TestClusterRequest, context: Any) -> admin.TestClusterResponse:
        self._journal.require_loaded()
        match request.WhichOneof("target"):
            case "name":
                known = self._decisions.clusters.get(shapes.id_of("clusters", request.name))
                described = cluster_to_proto(known)
            case "spec":
                described = routing.UpstreamCluster(spec=request.spec)
            case _:
                raise InvalidField("target", "say which cluster: one of name and spec")
        test = await self._decisions.test(described.spec, with_topics=True)
        probe = Probe(test.seen is not None, test.reason, test.seen, time.monotonic())
        response = admin.TestClusterResponse(cluster=shapes.seen_cluster(described, probe))
        if test.seen is not None:
            response.latency.CopyFrom(durations.of_ms(test.seen.latency_ms))
            response.topic_count = sum(not topic.startswith(INTERNAL_PREFIX) for topic in test.topics)
        return response

    async def RemoveCluster(self, request: admin.RemoveClusterRequest, context: Any) -> admin.RemoveClusterResponse:
        self._journal.require_loaded()
        name = shapes.id_of("clusters", request.name)
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(
            admin.RemoveClusterResponse,
            who,
            lambda answer: self._decisions.remove(
                name,
                who,
                expected_revision=request.expected_revision,
                validate_only=request.validate_only,
                answer=answer,
            ),
        )

    async def _changed(
        self, request: Any, name: str, decide: Callable[[Caller, AnswerCluster], Awaitable[ClusterEvent | None]]
    ) -> admin.Cluster:
        """The cluster after a decision; with `validate_only`, the cluster that the decision would give."""
        who = caller(request, request.request_id, request.reason)

        def answer(name: str, view: MeshView) -> StoredAnswer | None:
            return stored_response(who, shapes.cluster(view, name, self._probes.last(name)))

        async def decided() -> admin.Cluster:
            event = await decide(who, answer)
            if request.validate_only and event is not None:
                return shapes.seen_cluster(event.cluster, self._probes.last(name))
            return self._shape(name)

        return await once(admin.Cluster, decided())

    def _shape(self, name: str) -> admin.Cluster:
        return shapes.cluster(self._journal.view, name, self._probes.last(name))
