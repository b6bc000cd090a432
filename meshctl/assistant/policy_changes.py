"""The tools that plan a change of what clients may do: ACLs, their mode, and quotas. Control asks for the role admin.

Control's calls for ACLs and quotas have no expected revision. So each order names exactly what its plan has shown, and
the server compares the policy again right before the order.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import grpc
from google.protobuf.message import Message
from pydantic import Field

from mesh.acls.words import acl_text, mode_word
from mesh.quotas.codec import entity_to_proto, key_to_proto
from mesh.quotas.entity import DEFAULT, Entity, Key
from mesh.quotas.words import change_text, quota_text
from mesh.rpc import acls, quotas
from meshctl.acls import MODE_NUMBERS
from meshctl.assistant.arguments import Hours, Reason, Text
from meshctl.assistant.changes import Change, Plan, compare, told
from meshctl.assistant.policies import (
    Document,
    Operation,
    Pattern,
    Principal,
    Resource,
    ResourceName,
    named_acls,
    refused,
)
from meshctl.commands.acl_dry_run import with_acls, without_acls
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.failures import ExitCode, MeshctlError, from_rpc

EVERYONE_ELSE = DEFAULT.value
Of = Annotated[Text, Field(description=f'Its name; "{EVERYONE_ELSE}": each without a quota of its own; empty: any.')]


def plan_acl_change(
    connection: Connection,
    change: Literal["add", "remove"],
    principal: Principal,
    permission: Literal["allow", "deny"],
    operation: Operation,
    resource: Resource,
    reason: Reason,
    resource_name: ResourceName = "",
    pattern: Pattern = "literal",
    host: Annotated[Text, Field(description="Only this IP address; with add, empty is every host.")] = "",
    hours: Hours = 24,
) -> Plan:
    """One ACL that would be added, or the ACLs with all that is named that would be removed; which exactly, and in
    which mode. `refused` has the uses of the last hours that the ACLs of then would refuse, if they are enforced:
    `was_allowed` marks those that the ACLs of now allow. Control checks an ACL to add, which needs the role admin.
    """
    named = named_acls(principal, permission, operation, resource, resource_name, pattern, host)
    before = connection.acl_policy()
    request: acls.CreateAclsRequest | acls.DeleteAclsRequest
    if change == "add":
        request = acls.CreateAclsRequest(acls=named.to_add(), validate_only=True)
        found: Sequence[acls.Acl] = connection.call(connection.acls.CreateAcls, request).created
        request.validate_only, after = False, with_acls(before, found)
        del request.acls[:]
        request.acls.extend(found)
    else:
        found = [each for wanted in named.filters() for each in _found(connection, wanted)]
        request, after = acls.DeleteAclsRequest(filters=map(_exactly, found)), without_acls(before, found)
    if not found:
        there = "the ACL is there already" if change == "add" else "no ACL is like that"
        raise MeshctlError(f"{there}: nothing would change", ExitCode.REFUSED)
    request.reason, request.request_id = told(reason), str(uuid.uuid4())

    def order(now: Connection) -> Message:
        if isinstance(request, acls.CreateAclsRequest):
            return now.call(now.acls.CreateAcls, request)
        return now.call(now.acls.DeleteAcls, request)

    texts = [acl_text(each) for each in found]
    shown = {"acls": texts, **_effects(connection, before, after, hours)}
    return Plan(shown, Change(f"{change} ACLs: {'; '.join(texts)}", request, order, _unchanged(before)))


def plan_acl_mode(
    connection: Connection,
    mode: Literal["off", "observe", "enforce"],
    reason: Reason,
    hours: Hours = 24,
) -> Plan:
    """Another mode of the ACLs. off: no ACL counts. observe: gateways only count what they would refuse. enforce:
    gateways refuse what no ACL allows, and what an ACL denies. `refused` has the uses of the last hours that the ACLs
    would refuse in mode enforce. Needs the role admin. Control refuses to enforce ACLs that refuse every client.
    """
    before = connection.acl_policy()
    if before.mode == MODE_NUMBERS[mode]:
        raise MeshctlError(f"the mode is {mode} already: nothing would change", ExitCode.REFUSED)
    request = acls.SetAclModeRequest(mode=MODE_NUMBERS[mode], validate_only=True)
    connection.call(connection.acls.SetAclMode, request)
    request.validate_only, request.reason, request.request_id = False, told(reason), str(uuid.uuid4())
    change = Change(
        f"set the mode of the ACLs from {mode_word(before.mode)} to {mode}",
        request,
        lambda now: now.call(now.acls.SetAclMode, request),
        _unchanged(before),
    )
    after = acls.AclPolicy(acls=before.acls, super_users=before.super_users)
    return Plan(_effects(connection, before, after, hours), change)


def plan_quota_change(
    connection: Connection,
    key: Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"],
    reason: Reason,
    user: Of = "",
    client_id: Of = "",
    ip: Of = "",
    value: Annotated[
        float | None, Field(description="Bytes or connections a second, or % of a thread; null removes the quota.")
    ] = None,
) -> Plan:
    """A quota that would be set or removed: now and then. A quota is of a user, a client id, both, or an address;
    connection_creation_rate is of an address. Gateways throttle a client that exceeds a quota; explain_quotas has the
    use of a client. Needs the role admin.
    """
    entity = Entity(*(DEFAULT if name == EVERYONE_ELSE else name or None for name in (user, client_id, ip)))
    if entity == Entity():
        raise MeshctlError("name a user, a client_id or an ip", ExitCode.BAD_REQUEST)
    if value is not None and not math.isfinite(value):
        raise MeshctlError("value: a finite number is needed", ExitCode.BAD_REQUEST)
    wanted = quotas.QuotaChange(entity=entity_to_proto(entity), key=key_to_proto(Key(key)), value=value)

    def present(asked: Connection) -> list[quotas.Quota]:
        about = quotas.ListQuotasRequest(entity=wanted.entity, page_size=PAGE_SIZE)
        pages = asked.pages(asked.quotas.ListQuotas, about)
        return [each for page in pages for each in page.quotas if each.key == wanted.key]

    now = present(connection)
    if [each.value for each in now] == ([] if value is None else [value]):
        raise MeshctlError("the quota is so already: nothing would change", ExitCode.REFUSED)
    request = quotas.ChangeQuotasRequest(changes=[wanted], reason=told(reason), request_id=str(uuid.uuid4()))
    change = Change(
        change_text(wanted),
        request,
        lambda asked: asked.call(asked.quotas.ChangeQuotas, request),
        lambda again: compare(now, present(again)),
    )
    shown = {"now": quota_text(now[0]) if now else "no such quota", "then": change_text(wanted)}
    return Plan(shown, change)


def _effects(connection: Connection, before: acls.AclPolicy, after: acls.AclPolicy, hours: float) -> Document:
    found: dict[str, Any] = {"mode_now": mode_word(before.mode)}
    try:
        return {**found, **refused(connection, before, after, hours)}
    except grpc.RpcError as error:
        return {**found, "refused_not_known": from_rpc(error, connection.endpoint, options={}).message}


def _unchanged(before: acls.AclPolicy) -> Callable[[Connection], None]:
    def check(again: Connection) -> None:
        compare(before, again.acl_policy())

    return check


def _found(connection: Connection, wanted: acls.AclFilter) -> list[acls.Acl]:
    pages = connection.pages(connection.acls.ListAcls, acls.ListAclsRequest(filter=wanted, page_size=PAGE_SIZE))
    return [each for page in pages for each in page.acls]


def _exactly(of: acls.Acl) -> acls.AclFilter:
    """The filter that this ACL alone matches."""
    return acls.AclFilter(
        resource_type=of.resource_type, resource_name=of.resource_name, pattern_type=of.pattern_type,
        principal=of.principal, host=of.host, operation=of.operation, permission=of.permission,
    )  # fmt: skip
