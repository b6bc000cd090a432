"""ListenerService: the listeners of gateways, as decisions and as gateways report them."""

from __future__ import annotations

from typing import Any

from mesh.rpc import listeners, listeners_grpc
from services.control.api.listed_policies import ListedPolicy
from services.control.decisions.listeners.commands import SUBJECT
from services.control.decisions.members.members import Members
from services.control.domain.listeners.listeners import change_listeners
from services.control.store.journal import Journal


class ListenerService(listeners_grpc.ListenerServiceServicer):
    """See ListenerService in listeners.proto."""

    def __init__(self, journal: Journal, members: Members) -> None:
        self._members = members
        self._policy = ListedPolicy(SUBJECT, journal, members.routers_below)

    async def ChangeListeners(
        self, request: listeners.ChangeListenersRequest, context: Any
    ) -> listeners.ChangeListenersResponse:
        return await self._policy.change(
            request, change_listeners, listeners.ChangeListenersResponse, validate_only=request.validate_only
        )

    async def ListListeners(
        self, request: listeners.ListListenersRequest, context: Any
    ) -> listeners.ListListenersResponse:
        def asked(policy: listeners.ListenerPolicy) -> list[listeners.Listener]:
            return [each for each in policy.listeners if request.listener in ("", each.name)]

        found, token, revision = await self._policy.page(request, asked)
        is_present = not request.at_revision and not request.page_token
        reports = sorted(self._members.client_reports().items()) if is_present else []
        return listeners.ListListenersResponse(
            listeners=found,
            next_page_token=token,
            revision=revision,
            gateways=[
                listeners.GatewayListener(gateway=gateway, listener=each)
                for gateway, report in reports
                for each in report.listeners
                if request.listener in ("", each.name)
            ],
        )
