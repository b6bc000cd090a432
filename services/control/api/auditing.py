"""The audit event of a call. It never holds the request itself, which may hold values that must not be written down."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from google.protobuf.message import Message

from mesh.rpc import (
    acls,
    admin,
    grants,
    instances,
    listeners,
    proposals,
    protection,
    quotas,
    record_rules,
    rehearsals,
    replays,
    subscriptions,
    tenants,
    users,
    validation,
)
from mesh.rpc.principals import Principal
from services.control.api.bounds import LONGEST
from services.control.domain.access.grants import stream_of
from services.control.domain.acls.acls import ACLS
from services.control.domain.change_control.approvals import APPROVALS
from services.control.domain.listeners.listeners import LISTENERS
from services.control.domain.protection.rules import PROTECTION
from services.control.domain.quotas.quotas import QUOTAS
from services.control.domain.rehearsals.rehearsals import REHEARSALS
from services.control.domain.sidecars.instances import name_of
from services.control.domain.sidecars.subscriptions import stream_of as stream_of_subscription
from services.control.domain.tenants.tenants import TENANTS
from services.control.domain.users.users import stream_of as stream_of_user
from services.control.domain.validation.rules import VALIDATION

LONGEST_PROBLEM = 4_000
LONGEST_RESOURCE = 1_000
"""Characters. A call that is refused because a text is too long is audited too, with the beginning of the text."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The caller, as a call names it."""

    actor: str = "unknown"
    peer: str = ""
    trace_id: str = ""
    principal: Principal | None = None
    """Proved by the caller's certificate; None without TLS, and for control's own calls."""
    on_behalf_of: str = ""
    proposal: str = ""
    """The proposal by which the call is approved."""
    break_glass: str = ""
    """Why the caller makes a change at once that needs a second person."""


UNKNOWN = Introduction()


def audit_event(
    method: str, who: Introduction, request: Message, response: Message | None, code: str, problem: str, seconds: float
) -> admin.AuditEvent:
    """The event for a command that was answered like this."""
    options = getattr(request, "options", None) or request
    event = admin.AuditEvent(
        audit_id=str(uuid.uuid4()),
        actor=who.actor,
        peer=who.peer,
        method=method,
        resource=_resource(request)[:LONGEST_RESOURCE],
        reason=str(getattr(options, "reason", ""))[: LONGEST["reason"]],
        request_id=str(getattr(options, "request_id", ""))[: LONGEST["request_id"]],
        trace_id=who.trace_id,
        code=code,
        problem=problem[:LONGEST_PROBLEM],
        revision=int(getattr(response, "revision", 0)),
        milliseconds=round(seconds * 1000, 1),
        validate_only=bool(getattr(options, "validate_only", False)),
        on_behalf_of=who.on_behalf_of,
    )
    event.time.FromDatetime(datetime.now(UTC))
    return event


def _resource(request: Message) -> str:
    """The resource's name; for a resource without a name yet, the name that it is to get."""
    if name := str(getattr(request, "name", "")):
        return name
    match request:
        case admin.RegisterClusterRequest():
            return f"clusters/{request.spec.cluster_name}"
        case admin.CreateRuleRequest() if request.rule.rule_id:
            return f"rules/{request.rule.rule_id}"
        case grants.GrantRoleRequest():
            return stream_of(request.grant.principal)
        case proposals.SetApprovalPolicyRequest():
            return APPROVALS
        case grants.RevokeRoleRequest():
            return stream_of(request.principal)
        case users.SetUserRequest() | users.DeleteUserRequest() | users.RestoreUserRequest() | users.GetUserRequest():
            return stream_of_user(request.user)
        case acls.CreateAclsRequest() | acls.DeleteAclsRequest() | acls.SetAclModeRequest() | acls.ListAclsRequest():
            return ACLS
        case quotas.ChangeQuotasRequest() | quotas.ListQuotasRequest() | quotas.ExplainClientQuotasRequest():
            return QUOTAS
        case validation.ChangeValidationRulesRequest() | validation.ListValidationRulesRequest():
            return VALIDATION
        case tenants.ChangeTenantsRequest() | tenants.ListTenantsRequest() | tenants.ExplainTenantRequest():
            return TENANTS
        case rehearsals.StartRehearsalRequest() | rehearsals.EndRehearsalRequest() | rehearsals.GetRehearsalRequest():
            return REHEARSALS
        case listeners.ChangeListenersRequest() | listeners.ListListenersRequest():
            return LISTENERS
        case protection.ChangeProtectionRulesRequest() | protection.ListProtectionRulesRequest():
            return PROTECTION
        case record_rules.CreateRecordRuleRequest():
            return f"recordrules/{request.record_rule.record_rule_id}"
        case instances.PlaceOrderRequest():
            return request.target
        case subscriptions.DeclareSubscriptionRequest():
            return stream_of_subscription(request.subscription.name)
        case subscriptions.RevertSubscriptionsRequest():
            return "subscriptions"
        case replays.StartReplayRequest():
            return "replays"
        case instances.RegisterInstanceRequest():
            return name_of(request.instance)
        case admin.SetRuleRequest():
            kind = request.match.WhichOneof("kind") or ""
            return f"rules with {kind} {getattr(request.match, kind)}" if kind else "rules"
        case (
            admin.CreateRuleRequest() | admin.ReplaceRulesRequest() | admin.ChangeRulesRequest() | admin.RevertRequest()
        ):
            return "rules"
        case _:
            return ""
