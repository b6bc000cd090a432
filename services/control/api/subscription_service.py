"""SubscriptionService: subscriptions of sidecars, as decisions, and what sidecars say of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from mesh.rpc import subscriptions, subscriptions_grpc
from services.control.api import pages, shapes
from services.control.api.calls import caller, once_with_revision
from services.control.decisions.members.members import short
from services.control.decisions.sidecars.sidecars import Sidecars
from services.control.decisions.sidecars.subscriptions import SubscriptionDecisions
from services.control.domain.sidecars.subscriptions import SUBSCRIPTIONS, selects
from services.control.store.journal import Journal

M = TypeVar("M", bound=Message)
LARGEST_PAGE = 100
"""Declared subscriptions of some KiB each: an answer of gRPC has 4 MiB at most."""
MOST_REPORTS = 2_000


class SubscriptionService(subscriptions_grpc.SubscriptionServiceServicer):
    """See SubscriptionService in subscriptions.proto."""

    def __init__(self, journal: Journal, decisions: SubscriptionDecisions, sidecars: Sidecars) -> None:
        self._journal = journal
        self._decisions = decisions
        self._sidecars = sidecars

    async def DeclareSubscription(
        self, request: subscriptions.DeclareSubscriptionRequest, context: Any
    ) -> subscriptions.DeclareSubscriptionResponse:
        return await self._decide(subscriptions.DeclareSubscriptionResponse, request, self._decisions.declare)

    async def WithdrawSubscription(
        self, request: subscriptions.WithdrawSubscriptionRequest, context: Any
    ) -> subscriptions.WithdrawSubscriptionResponse:
        shapes.id_of(SUBSCRIPTIONS, request.name)
        return await self._decide(subscriptions.WithdrawSubscriptionResponse, request, self._decisions.withdraw)

    async def RevertSubscriptions(
        self, request: subscriptions.RevertSubscriptionsRequest, context: Any
    ) -> subscriptions.RevertSubscriptionsResponse:
        return await self._decide(subscriptions.RevertSubscriptionsResponse, request, self._decisions.revert)

    async def _decide(self, kind: type[M], request: Any, decide: Callable[..., Awaitable[int]]) -> M:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(kind, who, lambda answer: decide(request, who, answer))

    async def ListSubscriptions(
        self, request: subscriptions.ListSubscriptionsRequest, context: Any
    ) -> subscriptions.ListSubscriptionsResponse:
        self._journal.require_loaded()
        known, sidecar = self._decisions.known, short(request.sidecar)
        names = sorted(name for name, each in known.items() if not sidecar or selects(each, sidecar))
        size = min(pages.page_size(request.page_size), LARGEST_PAGE)
        listing = f"subscriptions {sidecar}".strip()
        page, token = pages.cut(listing, names, names, size, request.page_token)
        response = subscriptions.ListSubscriptionsResponse(
            subscriptions=[known[name] for name in page], next_page_token=token
        )
        if not token:
            reports, silent = self._sidecars.subscription_reports(sidecar)
            reports.sort(key=lambda each: not each.problem)
            response.reports.extend(reports[:MOST_REPORTS])
            response.reports_left_out = max(len(reports) - MOST_REPORTS, 0)
            response.silent_sidecars.extend(silent)
        return response
