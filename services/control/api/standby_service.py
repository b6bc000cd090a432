"""StandbyService: another cluster has copies of a cluster's topics, and takes its place when it is dead."""

from __future__ import annotations

from typing import Any

from mesh.rpc import standbys, standbys_grpc
from services.control.api import shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.standbys.commands import StandbyDecisions
from services.control.domain.standbys.standbys import STANDBYS, named
from services.control.store.journal import Journal


class StandbyService(standbys_grpc.StandbyServiceServicer):
    """See StandbyService in standbys.proto."""

    def __init__(self, journal: Journal, decisions: StandbyDecisions) -> None:
        self._journal = journal
        self._decisions = decisions

    async def StartStandby(self, request: standbys.StartStandbyRequest, context: Any) -> standbys.Standby:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        starting = self._decisions.start(request.spec, who, lambda standby: stored_response(who, standby))
        return await once(standbys.Standby, starting)

    async def GetStandby(self, request: standbys.GetStandbyRequest, context: Any) -> standbys.Standby:
        self._journal.require_loaded()
        shapes.id_of(STANDBYS, request.name)
        return self._decisions.shown(named(self._journal.view.standbys, request.name))

    async def EndStandby(self, request: standbys.EndStandbyRequest, context: Any) -> standbys.Standby:
        self._journal.require_loaded()
        shapes.id_of(STANDBYS, request.name)
        who = caller(request, request.request_id, request.reason)
        ending = self._decisions.end(request.name, who, lambda standby: stored_response(who, standby))
        return await once(standbys.Standby, ending)

    async def FailOver(self, request: standbys.FailOverRequest, context: Any) -> standbys.Standby:
        self._journal.require_loaded()
        shapes.id_of(STANDBYS, request.name)
        if request.validate_only:
            return await self._decisions.plan(request.name, request.target_cluster)
        who = caller(request, request.request_id, request.reason)
        failing = self._decisions.fail_over(
            request.name, request.target_cluster, who, lambda standby: stored_response(who, standby)
        )
        return await once(standbys.Standby, failing)
