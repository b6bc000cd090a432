"""FailBackService: a cluster that has failed over gets its topics back, with all their records."""

from __future__ import annotations

from typing import Any

from mesh.rpc import fail_backs, fail_backs_grpc
from services.control.api import shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.fail_backs.commands import FailBackDecisions
from services.control.domain.fail_backs.fail_backs import FAIL_BACKS, get
from services.control.store.journal import Journal


class FailBackService(fail_backs_grpc.FailBackServiceServicer):
    """See FailBackService in fail_backs.proto."""

    def __init__(self, journal: Journal, decisions: FailBackDecisions) -> None:
        self._journal = journal
        self._decisions = decisions

    async def StartFailBack(self, request: fail_backs.StartFailBackRequest, context: Any) -> fail_backs.FailBack:
        self._journal.require_loaded()
        if request.validate_only:
            return await self._decisions.plan(request.spec)
        who = caller(request, request.request_id, request.reason)
        starting = self._decisions.start(request.spec, who, lambda found: stored_response(who, found))
        return await once(fail_backs.FailBack, starting)

    async def GetFailBack(self, request: fail_backs.GetFailBackRequest, context: Any) -> fail_backs.FailBack:
        self._journal.require_loaded()
        shapes.id_of(FAIL_BACKS, request.name)
        return self._decisions.shown(get(self._journal.view.fail_backs, request.name))

    async def CancelFailBack(self, request: fail_backs.CancelFailBackRequest, context: Any) -> fail_backs.FailBack:
        self._journal.require_loaded()
        shapes.id_of(FAIL_BACKS, request.name)
        who = caller(request, request.request_id, request.reason)
        cancelling = self._decisions.cancel(request.name, who, lambda found: stored_response(who, found))
        return await once(fail_backs.FailBack, cancelling)
