"""AclService: the ACLs of clients, as decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from mesh.acls import Decision, Operation, ResourceType, Subject
from mesh.acls.acl import CLUSTER_NAME
from mesh.acls.codec import acl_to_proto, policy_from_proto
from mesh.rpc import acls, acls_grpc
from services.control.api import pages
from services.control.api.calls import caller, once
from services.control.decisions.acls.clusters import ClusterRights
from services.control.decisions.acls.commands import AclDecisions, AclEvent, Answer, Result
from services.control.decisions.answers import stored_response
from services.control.domain.acls.acls import order_of
from services.control.domain.acls.checks import check_asked, checked_filter, host_of
from services.control.domain.acls.matching import Matching
from services.control.presentation.acls import client_message, explanation
from services.control.store.journal import Journal

M = TypeVar("M", bound=Message)
Deciding = Callable[[Any, Any, Answer], Any]


class AclService(acls_grpc.AclServiceServicer):
    """See AclService in acls.proto."""

    def __init__(self, journal: Journal, decisions: AclDecisions, rights: ClusterRights) -> None:
        self._journal = journal
        self._decisions = decisions
        self._rights = rights

    async def CreateAcls(self, request: acls.CreateAclsRequest, context: Any) -> acls.CreateAclsResponse:
        def response(revision: int, event: AclEvent | None) -> acls.CreateAclsResponse:
            return acls.CreateAclsResponse(revision=revision, created=_acls_of(event))

        return await self._decide(acls.CreateAclsResponse, request, self._decisions.create, response)

    async def DeleteAcls(self, request: acls.DeleteAclsRequest, context: Any) -> acls.DeleteAclsResponse:
        def response(revision: int, event: AclEvent | None) -> acls.DeleteAclsResponse:
            return acls.DeleteAclsResponse(revision=revision, deleted=_acls_of(event))

        return await self._decide(acls.DeleteAclsResponse, request, self._decisions.delete, response)

    async def SetAclMode(self, request: acls.SetAclModeRequest, context: Any) -> acls.SetAclModeResponse:
        def response(revision: int, event: AclEvent | None) -> acls.SetAclModeResponse:
            return acls.SetAclModeResponse(revision=revision)

        return await self._decide(acls.SetAclModeResponse, request, self._decisions.set_mode, response)

    async def _decide(
        self, kind: type[M], request: Any, decide: Deciding, response: Callable[[int, AclEvent | None], M]
    ) -> M:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)

        async def decided() -> M:
            made: Result = await decide(request, who, lambda *result: stored_response(who, response(*result)))
            return response(*made)

        return await once(kind, decided())

    async def ListAcls(self, request: acls.ListAclsRequest, context: Any) -> acls.ListAclsResponse:
        self._journal.require_loaded()
        wanted = checked_filter(request.filter, "filter")
        listing = f"acls {request.at_revision}"
        revision, start = pages.place_at_revision(listing, request.page_token) or (request.at_revision, 0)
        policy = await self._decisions.at(revision)
        ordered = await asyncio.to_thread(lambda: sorted(Matching(policy).of(wanted), key=order_of))
        page, token = pages.cut_at_revision(listing, ordered, policy.revision, start, request.page_size)
        return acls.ListAclsResponse(
            acls=page,
            next_page_token=token,
            mode=policy.mode,
            super_users=policy.super_users,
            revision=policy.revision,
        )

    async def ExplainClientAccess(
        self, request: acls.ExplainClientAccessRequest, context: Any
    ) -> acls.ExplainClientAccessResponse:
        self._journal.require_loaded()
        check_asked(request)
        host = host_of(request.host, "host") if request.host else ""
        subject = Subject((request.principal, *request.more_principals), host)
        policy = await self._decisions.at(request.at_revision)
        kind, operation = ResourceType(request.resource_type), Operation(request.operation)

        def decide() -> Decision:
            return policy_from_proto(policy).decide(subject, operation, kind, request.resource_name or CLUSTER_NAME)

        decision = await asyncio.to_thread(decide)
        is_refused = policy.mode == acls.ACL_MODE_ENFORCE and not decision.allowed
        asks = not (is_refused or request.at_revision)
        return acls.ExplainClientAccessResponse(
            clusters=await self._rights.found(operation, kind, request.resource_name) if asks else (),
            allowed=decision.allowed,
            mode=policy.mode,
            acl=None if decision.acl is None else acl_to_proto(decision.acl),
            super_user=bool(decision.super_user),
            explanation=explanation(request, decision, policy.mode),
            client_message=client_message(request) if is_refused else "",
        )


def _acls_of(event: AclEvent | None) -> Any:
    return () if event is None else getattr(event, "acls", ())
