"""AccessService: roles of people and programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf.message import Message

from mesh.rpc import access, grants, grants_grpc
from mesh.rpc.method_access import PACKAGE, access_of
from mesh.rpc.roles import PEOPLE
from services.control.api import pages
from services.control.api.access_gate import AccessGate
from services.control.api.calls import caller, once_with_revision
from services.control.decisions.access.commands import AccessDecisions
from services.control.domain.access.grants import in_order
from services.control.domain.access.rights import Asked, Asker, Policy
from services.control.domain.access.things import Kind, Thing
from services.control.domain.errors import InvalidField
from services.control.store.journal import Journal

M = TypeVar("M", bound=Message)


class AccessService(grants_grpc.AccessServiceServicer):
    """See AccessService in grants.proto."""

    def __init__(self, journal: Journal, decisions: AccessDecisions, gate: AccessGate) -> None:
        self._journal = journal
        self._decisions = decisions
        self._gate = gate

    async def GrantRole(self, request: grants.GrantRoleRequest, context: Any) -> grants.GrantRoleResponse:
        return await self._decide(grants.GrantRoleResponse, request, self._decisions.grant)

    async def RevokeRole(self, request: grants.RevokeRoleRequest, context: Any) -> grants.RevokeRoleResponse:
        return await self._decide(grants.RevokeRoleResponse, request, self._decisions.revoke)

    async def RevertGrants(self, request: grants.RevertGrantsRequest, context: Any) -> grants.RevertGrantsResponse:
        return await self._decide(grants.RevertGrantsResponse, request, self._decisions.revert)

    async def _decide(self, kind: type[M], request: Any, decide: Callable[..., Awaitable[int]]) -> M:
        self._journal.require_loaded()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(kind, who, lambda answer: decide(request, who, answer))

    async def ListGrants(self, request: grants.ListGrantsRequest, context: Any) -> grants.ListGrantsResponse:
        self._journal.require_loaded()
        policy = self._gate.policy
        known = policy.known
        if request.at_revision:
            known = await self._decisions.at(request.at_revision, "at_revision")
            policy = Policy(known)
        found = [*policy.of_settings(), *in_order(known)]
        shown = [each for each in found if request.principal in ("", each.principal)]
        keys = [_key(each) for each in shown]
        listing = f"grants {request.principal} {request.at_revision}"
        ordered = sorted(zip(keys, shown, strict=True), key=lambda each: each[0])
        page, token = pages.cut(
            listing, [each for _, each in ordered], sorted(keys), request.page_size, request.page_token
        )
        without = sorted(name for name in known if policy.is_shut_out(name) and request.principal in ("", name))
        return grants.ListGrantsResponse(grants=page, next_page_token=token, without_rights=without)

    async def ExplainAccess(self, request: grants.ExplainAccessRequest, context: Any) -> grants.ExplainAccessResponse:
        self._journal.require_loaded()
        if request.certificate_role not in (access.ROLE_UNSPECIFIED, *PEOPLE):
            raise InvalidField(
                "certificate_role", "is a role of members, about which no grant decides; name viewer, operator or admin"
            )
        asker = Asker(request.principal, tuple(request.groups), request.certificate_role)
        verdict = self._gate.policy.verdict(asker, _asked(request))
        return grants.ExplainAccessResponse(
            allowed=verdict.grant is not None,
            grant=verdict.grant,
            reason=verdict.reason,
            tried=[grants.TriedGrant(grant=grant, reason=reason) for grant, reason in verdict.tried],
        )


def _asked(request: grants.ExplainAccessRequest) -> Asked:
    method = request.method.removeprefix(PACKAGE).removeprefix("/")
    try:
        access_to = access_of(f"{PACKAGE}{method}")
    except KeyError:
        text = f"{request.method!r} is no method of the mesh; RuleService/SetRule is one"
        raise InvalidField("method", text) from None
    named = {Kind.CLUSTER: request.clusters, Kind.TOPIC: request.topics, Kind.SIDECAR: request.sidecars}
    return Asked(method, access_to, tuple(Thing(kind, name) for kind, names in named.items() for name in names))


def _key(grant: grants.Grant) -> str:
    return f"{grant.principal} {grant.role} {grant.revision:019d}"
