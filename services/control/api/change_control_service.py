"""ChangeControlService: freezes and thaws the mesh, and schedules changes."""

from __future__ import annotations

from typing import Any

from mesh.rpc import admin, admin_grpc, events
from services.control.api import pages, shapes
from services.control.api.calls import caller, once, once_with_revision
from services.control.decisions.answers import stored_response
from services.control.decisions.change_control.freezing import Freezing
from services.control.decisions.change_control.schedules import Schedules
from services.control.domain.change_control.schedules import SCHEDULES, in_order
from services.control.store.journal import Journal


class ChangeControlService(admin_grpc.ChangeControlServiceServicer):
    """See ChangeControlService in admin.proto."""

    def __init__(self, journal: Journal, schedules: Schedules) -> None:
        self._journal = journal
        self._freezing = Freezing(journal)
        self._schedules = schedules

    async def Freeze(self, request: admin.FreezeRequest, context: Any) -> admin.FreezeResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(admin.FreezeResponse, who, lambda answer: self._freezing.freeze(who, answer))

    async def Thaw(self, request: admin.ThawRequest, context: Any) -> admin.ThawResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(admin.ThawResponse, who, lambda answer: self._freezing.thaw(who, answer))

    async def ScheduleChange(self, request: admin.ScheduleChangeRequest, context: Any) -> admin.ScheduledChange:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        async def decide() -> admin.ScheduledChange:
            event = await self._schedules.schedule(request, who, lambda event: stored_response(who, _shape(event)))
            return _shape(event)

        return await once(admin.ScheduledChange, decide())

    async def ListScheduledChanges(
        self, request: admin.ListScheduledChangesRequest, context: Any
    ) -> admin.ListScheduledChangesResponse:
        self._journal.require_loaded()
        coming = in_order(self._journal.view.schedules)
        keys = [f"{each.change_scheduled.time.ToNanoseconds():020d} {each.position:020d}" for each in coming]
        page, token = pages.cut(SCHEDULES, coming, keys, request.page_size, request.page_token)
        return admin.ListScheduledChangesResponse(scheduled_changes=map(_shape, page), next_page_token=token)

    async def CancelScheduledChange(
        self, request: admin.CancelScheduledChangeRequest, context: Any
    ) -> admin.CancelScheduledChangeResponse:
        self._journal.require_loaded()
        shapes.id_of(SCHEDULES, request.name)
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(
            admin.CancelScheduledChangeResponse,
            who,
            lambda answer: self._schedules.cancel(request.name, who, lambda event: answer(event.position)),
        )


def _shape(event: events.Event) -> admin.ScheduledChange:
    scheduled = event.change_scheduled
    return admin.ScheduledChange(
        name=scheduled.name,
        time=scheduled.time,
        command=scheduled.command,
        may_be_late=scheduled.may_be_late,
        revision=event.position,
        actor=event.actor,
        reason=event.reason,
    )
