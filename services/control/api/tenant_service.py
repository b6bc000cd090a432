"""TenantService: tenants, as decisions."""

from __future__ import annotations

from typing import Any

from mesh.rpc import tenants, tenants_grpc
from mesh.tenants.codec import policy_from_proto, tenant_to_proto
from services.control.api.listed_policies import ListedPolicy
from services.control.decisions.policies import RoutersBelow
from services.control.decisions.tenants.commands import SUBJECT
from services.control.domain.errors import InvalidField
from services.control.domain.tenants.tenants import MEMBER, MOST_MEMBERS, change_tenants
from services.control.store.journal import Journal


class TenantService(tenants_grpc.TenantServiceServicer):
    """See TenantService in tenants.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._journal = journal
        self._policy = ListedPolicy(SUBJECT, journal, routers_below)

    async def ChangeTenants(self, request: tenants.ChangeTenantsRequest, context: Any) -> tenants.ChangeTenantsResponse:
        return await self._policy.change(
            request, change_tenants, tenants.ChangeTenantsResponse, validate_only=request.validate_only
        )

    async def ListTenants(self, request: tenants.ListTenantsRequest, context: Any) -> tenants.ListTenantsResponse:
        found, token, revision = await self._policy.page(request, lambda policy: policy.tenants)
        return tenants.ListTenantsResponse(tenants=found, next_page_token=token, revision=revision)

    async def ExplainTenant(self, request: tenants.ExplainTenantRequest, context: Any) -> tenants.ExplainTenantResponse:
        self._journal.require_loaded()
        principals = [request.principal, *request.groups]
        if not MEMBER.fullmatch(request.principal) or not request.principal.startswith("User:"):
            raise InvalidField("principal", f"{request.principal[:255]!r} is no user: write User:NAME")
        if len(request.groups) > MOST_MEMBERS or not all(map(MEMBER.fullmatch, request.groups)):
            raise InvalidField("groups", f"are at most {MOST_MEMBERS} of Group:NAME")
        policy = await self._policy.at(request.at_revision)
        found = policy_from_proto(policy).tenant_of(principals)
        if found is None:
            return tenants.ExplainTenantResponse(full_name=request.topic, revision=policy.revision)
        return tenants.ExplainTenantResponse(
            tenant=tenant_to_proto(found),
            member=found.member(principals) or "",
            full_name=found.full_topic(request.topic),
            shared=request.topic in found.shared,
            revision=policy.revision,
        )
