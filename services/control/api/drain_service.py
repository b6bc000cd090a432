"""DrainService: a cluster's topics move to another one, some at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mesh.rpc import drains, drains_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.drains.commands import Answer, DrainDecisions
from services.control.domain.drains.drains import DRAINS, counted
from services.control.domain.open_and_ended import newest_first
from services.control.store.drafts import Caller
from services.control.store.journal import Journal


class DrainService(drains_grpc.DrainServiceServicer):
    """See DrainService in drains.proto."""

    def __init__(self, journal: Journal, decisions: DrainDecisions) -> None:
        self._journal = journal
        self._decisions = decisions

    async def StartDrain(self, request: drains.StartDrainRequest, context: Any) -> drains.Drain:
        self._journal.require_loaded()
        if request.validate_only:
            return await self._decisions.plan(request.spec)
        who = caller(request, request.request_id, request.reason)
        starting = self._decisions.start(request.spec, who, lambda drain: stored_response(who, drain))
        return await once(drains.Drain, starting)

    async def GetDrain(self, request: drains.GetDrainRequest, context: Any) -> drains.Drain:
        self._journal.require_loaded()
        shapes.id_of(DRAINS, request.name)
        return self._decisions.shown(self._journal.view.drains.get(request.name))

    async def ListDrains(self, request: drains.ListDrainsRequest, context: Any) -> drains.ListDrainsResponse:
        self._journal.require_loaded()
        found = self._journal.view.drains.newest()
        keys = [newest_first(each) for each in found]
        page, token = pages.cut(DRAINS, found, keys, request.page_size, request.page_token)
        answer = drains.ListDrainsResponse(drains=map(counted, page), next_page_token=token)
        for each in answer.drains:
            del each.topics[:]
        return answer

    async def PauseDrain(self, request: drains.PauseDrainRequest, context: Any) -> drains.Drain:
        return await self._changed(request, self._decisions.pause)

    async def ResumeDrain(self, request: drains.ResumeDrainRequest, context: Any) -> drains.Drain:
        return await self._changed(request, self._decisions.resume)

    async def CancelDrain(self, request: drains.CancelDrainRequest, context: Any) -> drains.Drain:
        return await self._changed(request, self._decisions.cancel)

    async def _changed(
        self,
        request: drains.PauseDrainRequest | drains.ResumeDrainRequest | drains.CancelDrainRequest,
        change: Callable[[str, Caller, Answer], Awaitable[drains.Drain]],
    ) -> drains.Drain:
        self._journal.require_loaded()
        shapes.id_of(DRAINS, request.name)
        who = caller(request, request.request_id, request.reason)
        changing = change(request.name, who, lambda drain: stored_response(who, drain))
        return await once(drains.Drain, changing)
