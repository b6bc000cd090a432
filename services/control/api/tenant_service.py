"""TenantService: tenants, as decisions."""

from __future__ import annotations

from typing import Any

from mesh.rpc import events, tenants, tenants_grpc
from mesh.tenants.codec import policy_from_proto, tenant_to_proto
from services.control.api import pages
from services.control.api.calls import caller, once
from services.control.decisions.answers import stored_response
from services.control.decisions.policies import PolicyDecisions, RoutersBelow
from services.control.decisions.tenants.commands import SUBJECT
from services.control.domain.errors import InvalidField
from services.control.domain.tenants.tenants import MEMBER, MOST_MEMBERS, change_tenants
from services.control.store.journal import Journal


class TenantService(tenants_grpc.TenantServiceServicer):
    """See TenantService in tenants.proto."""

    def __init__(self, journal: Journal, routers_below: RoutersBelow) -> None:
        self._journal = journal
        self._decisions = PolicyDecisions(SUBJECT, journal, routers_below)

    async def ChangeTenants(self, request: tenants.ChangeTenantsRequest, context: Any) -> tenants.ChangeTenantsResponse:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        def response(revision: int, event: events.TenantsChanged | None) -> tenants.ChangeTenantsResponse:
            return tenants.ChangeTenantsResponse(revision=revision, changed=() if event is None else event.changes)

        async def decided() -> tenants.ChangeTenantsResponse:
            made = await self._decisions.decide(
                lambda policy: change_tenants(policy, request.changes),
                who,
                lambda *each: stored_response(who, response(*each)),
                validate_only=request.validate_only,
            )
            return response(*made)

        return await once(tenants.ChangeTenantsResponse, decided())

    async def ListTenants(self, request: tenants.ListTenantsRequest, context: Any) -> tenants.ListTenantsResponse:
        self._journal.require_loaded()
        listing = f"tenants {request.at_revision}"
        revision, start = pages.place_at_revision(listing, request.page_token) or (request.at_revision, 0)
        policy = await self._decisions.at(revision)
        end = start + pages.page_size(request.page_size)
        return tenants.ListTenantsResponse(
            tenants=policy.tenants[start:end],
            next_page_token=pages.token(listing, f"{policy.revision} {end}") if end < len(policy.tenants) else "",
            revision=policy.revision,
        )

    async def ExplainTenant(self, request: tenants.ExplainTenantRequest, context: Any) -> tenants.ExplainTenantResponse:
        self._journal.require_loaded()
        principals = [request.principal, *request.groups]
        if not MEMBER.fullmatch(request.principal) or not request.principal.startswith("User:"):
            raise InvalidField("principal", f"{request.principal[:255]!r} is no user: write User:NAME")
        if len(request.groups) > MOST_MEMBERS or not all(map(MEMBER.fullmatch, request.groups)):
            raise InvalidField("groups", f"are at most {MOST_MEMBERS} of Group:NAME")
        policy = await self._decisions.at(request.at_revision)
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
