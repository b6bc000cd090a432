"""QuotaService: the quotas of clients, as decisions."""

from __future__ import annotations

from typing import Any, Final

from mesh.quotas.codec import entity_to_proto, policy_from_proto, quota_to_proto
from mesh.routing.clients import ANONYMOUS
from mesh.rpc import events, quotas, quotas_grpc
from services.control.api import pages
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.policies import PolicyDecisions, RoutersBelow
from services.control.decisions.quotas.commands import SUBJECT
from services.control.domain.quotas.quotas import address_of, change_quotas, check_name, checked_entity
from services.control.presentation.quotas import explanation
from services.control.store.journal import Journal

NOBODY: Final = ANONYMOUS.partition(":")[2]


class QuotaService(quotas_grpc.QuotaServiceServicer):
    """See QuotaService in quotas.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._journal = journal
        self._decisions = PolicyDecisions(SUBJECT, journal, routers_below)

    async def ChangeQuotas(self, request: quotas.ChangeQuotasRequest, context: Any) -> quotas.ChangeQuotasResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        def response(revision: int, event: events.QuotasChanged | None) -> quotas.ChangeQuotasResponse:
            return quotas.ChangeQuotasResponse(revision=revision, changed=() if event is None else event.changes)

        async def decided() -> quotas.ChangeQuotasResponse:
            made = await self._decisions.decide(
                lambda policy: change_quotas(policy, request.changes),
                who,
                lambda *each: stored_response(who, response(*each)),
                validate_only=request.validate_only,
            )
            return response(*made)

        return await once(quotas.ChangeQuotasResponse, decided())

    async def ListQuotas(self, request: quotas.ListQuotasRequest, context: Any) -> quotas.ListQuotasResponse:
        self._journal.require_loaded()
        listing = f"quotas {request.at_revision}"
        revision, start = pages.place_at_revision(listing, request.page_token) or (request.at_revision, 0)
        policy = await self._decisions.at(revision)
        found = list(policy.quotas)
        if request.HasField("entity"):
            wanted = entity_to_proto(checked_entity(request.entity, "entity"))
            found = [each for each in found if each.entity == wanted]
        end = start + pages.page_size(request.page_size)
        return quotas.ListQuotasResponse(
            quotas=found[start:end],
            next_page_token=pages.token(listing, f"{policy.revision} {end}") if end < len(found) else "",
            revision=policy.revision,
        )

    async def ExplainClientQuotas(
        self, request: quotas.ExplainClientQuotasRequest, context: Any
    ) -> quotas.ExplainClientQuotasResponse:
        self._journal.require_loaded()
        user = request.user or NOBODY
        check_name(user, "user")
        if request.client_id:
            check_name(request.client_id, "client_id")
        address = address_of(request.ip, "ip") if request.ip else ""
        policy = await self._decisions.at(request.at_revision)
        limits = policy_from_proto(policy).limits(user, request.client_id, address, request.groups)
        return quotas.ExplainClientQuotasResponse(
            quotas=[quota_to_proto(each.quota) for each in limits],
            explanations=map(explanation, limits),
            revision=policy.revision,
        )
