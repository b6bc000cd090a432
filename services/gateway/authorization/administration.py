"""Guards of requests about ACLs, configurations and delegation tokens."""

from __future__ import annotations

from typing import Any, Final, cast

from mesh.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from mesh.acls.codec import acl_from_proto, filter_to_proto
from mesh.rpc import acls, kafka_changes
from services.gateway.authorization.asking import Asking, Guard
from services.gateway.authorization.shapes import Need, Refused, cluster, needs, rows
from services.gateway.requests.clusters.control_changes import change
from services.gateway.requests.plan import Plan
from services.gateway.requests.verdicts import DONE, Verdict
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import create_acls, create_delegation_token, delete_acls, describe_acls
from services.gateway.wire.messages import describe_delegation_token as tokens
from services.gateway.wire.schema import Struct

UNREADABLE: Final = (
    "the filter has a resource type, pattern type, operation or permission that the gateway does not know"
)
_DESCRIBE: Final = cluster(Operation.DESCRIBE)
_ALTER: Final = cluster(Operation.ALTER)


# --- ACLs ------------------------------------------------------------------------------------------------------------


def guard_describe_acls(asking: Asking) -> Plan:
    """The ACLs are those of the mesh. If a cluster forbids more to the gateway, the errors of that cluster say so."""
    yield from ()
    message = asking.request.decode(describe_acls.DescribeAclsRequest)
    code = _DESCRIBE(asking, message)
    if code:
        return describe_acls.DescribeAclsResponse(error_code=code, error_message=words_of(code))
    try:
        found = _filter(message)
    except ValueError:
        return describe_acls.DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=UNREADABLE)
    resources: dict[tuple[ResourceType, str, PatternType], describe_acls.DescribeAclsResource] = {}
    for acl in filter(found.matches, asking.access.rules.policy.acls):
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = describe_acls.DescribeAclsResource(*key)
        resource.acls.append(_described(acl))
    answer = describe_acls.DescribeAclsResponse(error_message=None, resources=list(resources.values()))
    if asking.request.version == 0:  # it knows literal names alone
        answer.resources = [each for each in answer.resources if each.pattern_type == PatternType.LITERAL]
    return answer


def _filter(message: describe_acls.DescribeAclsRequest | delete_acls.DeleteAclsFilter) -> AclFilter:
    """ValueError if a number is not known here."""
    return AclFilter(
        ResourceType(message.resource_type_filter),
        message.resource_name_filter,
        PatternType(message.pattern_type_filter),
        message.principal_filter,
        message.host_filter,
        Operation(message.operation),
        Permission(message.permission_type),
    )


def _described(acl: Acl) -> describe_acls.AclDescription:
    return describe_acls.AclDescription(acl.principal, acl.host, acl.operation, acl.permission)


def guard_create_acls(asking: Asking) -> Plan:
    """Control adds all ACLs of a request, or none."""
    message = asking.request.decode(create_acls.CreateAclsRequest)
    code = _ALTER(asking, message)
    verdict = Verdict(code, words_of(code)) if code else DONE
    if not code:
        wanted = acls.CreateAclsRequest(acls=map(_created, message.creations))
        made = yield from change(asking.mesh.session, create_acls=wanted)
        verdict = made if isinstance(made, Verdict) else DONE
    results = [create_acls.AclCreationResult(*verdict) for _ in message.creations]
    return create_acls.CreateAclsResponse(results=results)


def guard_delete_acls(asking: Asking) -> Plan:
    """Control deletes by all filters of a request, or by none."""
    message = asking.request.decode(delete_acls.DeleteAclsRequest)
    code, filters, text = _ALTER(asking, message), list[AclFilter](), ""
    try:
        filters = [_filter(each) for each in message.filters]
    except ValueError:
        code, text = code or ErrorCode.INVALID_REQUEST, UNREADABLE
    if code:
        made: kafka_changes.KafkaChangeResponse | Verdict = Verdict(code, text or words_of(code))
    else:
        wanted = acls.DeleteAclsRequest(filters=map(filter_to_proto, filters))
        made = yield from change(asking.mesh.session, delete_acls=wanted)
    if isinstance(made, Verdict):
        failed = [delete_acls.DeleteAclsFilterResult(*made) for _ in message.filters]
        return delete_acls.DeleteAclsResponse(filter_results=failed)
    deleted = [acl_from_proto(each) for each in made.delete_acls.deleted]
    results = [
        delete_acls.DeleteAclsFilterResult(0, None, [_deleted(acl) for acl in deleted if each.matches(acl)])
        for each in filters
    ]
    return delete_acls.DeleteAclsResponse(filter_results=results)


def _created(of: create_acls.AclCreation) -> acls.Acl:
    """The numbers of both are Kafka's."""
    return acls.Acl(
        resource_type=cast("acls.AclResourceType.ValueType", of.resource_type),
        resource_name=of.resource_name,
        pattern_type=cast("acls.AclPatternType.ValueType", of.resource_pattern_type),
        principal=of.principal,
        host=of.host,
        operation=cast("acls.AclOperation.ValueType", of.operation),
        permission=cast("acls.AclPermission.ValueType", of.permission_type),
    )


def _deleted(acl: Acl) -> delete_acls.DeleteAclsMatchingAcl:
    return delete_acls.DeleteAclsMatchingAcl(
        0,
        None,
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


# --- configurations --------------------------------------------------------------------------------------------------

_CONFIG_TOPIC, _CONFIG_GROUP = 2, 32
"""org.apache.kafka.common.config.ConfigResource.Type; brokers, their loggers and client metrics are the cluster's."""


def of_config(operation: Operation) -> Need:
    on = {
        _CONFIG_TOPIC: needs(operation, ResourceType.TOPIC, "resource_name"),
        _CONFIG_GROUP: needs(operation, ResourceType.GROUP, "resource_name"),
    }
    of_cluster = cluster(operation)
    return lambda asking, resource: on.get(resource.resource_type, of_cluster)(asking, resource)


def configurations(
    operation: Operation, request: type[Struct], response: type[Struct], results: str, result: type[Any]
) -> Guard:
    refused: Refused = lambda resource, code: result(  # noqa: E731  # its type is declared
        error_code=code,
        error_message=words_of(code),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    return rows(request, response, ("resources", results), of_config(operation), refused)


# --- delegation tokens -----------------------------------------------------------------------------------------------


def may_create_token(asking: Asking, message: create_delegation_token.CreateDelegationTokenRequest) -> int:
    """A need: every client may have a token of its own user."""
    owner = f"{message.owner_principal_type}:{message.owner_principal_name}"
    if not message.owner_principal_name or owner == str(asking.access.subject):
        return 0
    allowed = asking.may(Operation.CREATE_TOKENS, ResourceType.USER, owner)
    return 0 if allowed else ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def may_change_token(asking: Asking, message: Struct) -> int:
    """A need: brokers let owners and renewers change a token, and take the gateway for the one who asks.

    So the gateway lets only clients change tokens that may change the cluster.
    """
    return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED if _ALTER(asking, message) else 0


def guard_describe_tokens(asking: Asking) -> Plan:
    answer = yield from asking.answer(tokens.DescribeDelegationTokenResponse)
    if isinstance(answer, tokens.DescribeDelegationTokenResponse):
        answer.tokens = [each for each in answer.tokens if _shows_token(asking, each)]
    return answer


def _shows_token(asking: Asking, token: tokens.DescribedDelegationToken) -> bool:
    """To owners, requesters and renewers, and to clients that may describe it, or all tokens of its owner."""
    owner = f"{token.principal_type}:{token.principal_name}"
    requester = f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
    own = {owner, requester, *(f"{each.principal_type}:{each.principal_name}" for each in token.renewers)}
    return (
        str(asking.access.subject) in own
        or asking.shows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or asking.shows(Operation.DESCRIBE_TOKENS, ResourceType.USER, owner)
    )
