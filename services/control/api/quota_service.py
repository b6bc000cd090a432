"""QuotaService: the quotas of clients, as decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mesh.quotas.codec import entity_to_proto, policy_from_proto, quota_to_proto
from mesh.routing.clients import ANONYMOUS
from mesh.rpc import quotas, quotas_grpc
from services.control.api.listed_policies import ListedPolicy
from services.control.decisions.policies import RoutersBelow
from services.control.decisions.quotas.commands import SUBJECT
from services.control.domain.quotas.quotas import address_of, change_quotas, check_name, checked_entity
from services.control.presentation.quotas import explanation
from services.control.store.journal import Journal

NOBODY: Final = ANONYMOUS.partition(":")[2]


class QuotaService(quotas_grpc.QuotaServiceServicer):
    """See QuotaService in quotas.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._journal = journal
        self._policy = ListedPolicy(SUBJECT, journal, routers_below)

    async def ChangeQuotas(self, request: quotas.ChangeQuotasRequest, context: Any) -> quotas.ChangeQuotasResponse:
        return await self._policy.change(
            request, change_quotas, quotas.ChangeQuotasResponse, validate_only=request.validate_only
        )

    async def ListQuotas(self, request: quotas.ListQuotasRequest, context: Any) -> quotas.ListQuotasResponse:
        def asked(policy: quotas.QuotaPolicy) -> Sequence[quotas.Quota]:
            if not request.HasField("entity"):
                return policy.quotas
            wanted = entity_to_proto(checked_entity(request.entity, "entity"))
            return [each for each in policy.quotas if each.entity == wanted]

        found, token, revision = await self._policy.page(request, asked)
        return quotas.ListQuotasResponse(quotas=found, next_page_token=token, revision=revision)

    async def ExplainClientQuotas(
        self, request: quotas.ExplainClientQuotasRequest, context: Any
    ) -> quotas.ExplainClientQuotasResponse:
        self._journal.require_loaded()
        user = request.user or NOBODY
        check_name(user, "user")
        if request.client_id:
            check_name(request.client_id, "client_id")
        address = address_of(request.ip, "ip") if request.ip else ""
        policy = await self._policy.at(request.at_revision)
        limits = policy_from_proto(policy).limits(user, request.client_id, address, request.groups)
        return quotas.ExplainClientQuotasResponse(
            quotas=[quota_to_proto(each.quota) for each in limits],
            explanations=map(explanation, limits),
            revision=policy.revision,
        )
