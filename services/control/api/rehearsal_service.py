"""RehearsalService: a candidate cluster gets a share of the produces of some topics."""

from __future__ import annotations

from typing import Any

from mesh.rpc import rehearsals, rehearsals_grpc
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.rehearsals.commands import RehearsalDecisions
from services.control.store.journal import Journal


class RehearsalService(rehearsals_grpc.RehearsalServiceServicer):
    """See RehearsalService in rehearsals.proto."""

    def __init__(self, journal: Journal, decisions: RehearsalDecisions) -> None:
        self._journal = journal
        self._decisions = decisions

    async def StartRehearsal(self, request: rehearsals.StartRehearsalRequest, context: Any) -> rehearsals.Rehearsal:
        self._journal.require_loaded()
        if request.validate_only:
            return await self._decisions.plan(request)
        who = caller(request, request.request_id, request.reason)
        starting = self._decisions.start(request, who, lambda found: stored_response(who, found))
        return await once(rehearsals.Rehearsal, starting)

    async def EndRehearsal(self, request: rehearsals.EndRehearsalRequest, context: Any) -> rehearsals.Rehearsal:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        ending = self._decisions.end(request.cluster_name, who, lambda found: stored_response(who, found))
        return await once(rehearsals.Rehearsal, ending)

    async def GetRehearsal(self, request: rehearsals.GetRehearsalRequest, context: Any) -> rehearsals.Rehearsal:
        self._journal.require_loaded()
        return self._decisions.shown(request.cluster_name)
