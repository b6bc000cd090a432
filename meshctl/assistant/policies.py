"""The tools that ask about people and clients: ACLs, quotas, traffic, and audits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import grpc
from google.protobuf.message import Message
from pydantic import Field

from mesh.acls.words import OPERATIONS, RESOURCES
from mesh.rpc import acls, admin, audit, quotas, tenants, traffic
from meshctl.acl_traffic import document
from meshctl.acls import FILTER_PATTERNS, OPERATION, RESOURCE, Named
from meshctl.assistant.arguments import USUAL_PAGE, Hours, Name, Size, Text, Token, since
from meshctl.commands.acl_dry_run import judged_traffic, with_acls, without_acls
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError, from_rpc
from meshctl.output import as_dict

Document = dict[str, Any]
Principal = Annotated[Name, Field(description="A principal: User:alice.")]
Operation = Annotated[Name, Field(description=f"One of {', '.join(OPERATIONS.values())}.")]
Resource = Annotated[Name, Field(description=f"One of {', '.join(RESOURCES.values())}.")]
ResourceName = Annotated[Text, Field(description="Its name; empty for cluster.")]
Pattern = Literal["literal", "prefixed"]
Dimension = Literal["client", "principal", "topic", "rule", "cluster", "api", "reporter"]


def list_acls(
    connection: Connection,
    principal: Annotated[Text, Field(description="Only those of this principal: User:alice.")] = "",
    resource: Annotated[Text, Field(description=f"Only those about: {', '.join(RESOURCES.values())}.")] = "",
    resource_name: Annotated[Text, Field(description="With a resource: only those that count for this name.")] = "",
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The ACLs of clients, with their mode. off: no ACL counts. observe: gateways only count what they would refuse.
    enforce: gateways refuse what no ACL allows, and what an ACL denies.
    """
    wanted = acls.AclFilter(
        resource_type=_resource(resource, "*")[0] if resource else acls.ACL_RESOURCE_TYPE_ANY,
        resource_name=resource_name,
        pattern_type=FILTER_PATTERNS["match" if resource_name else "any"],
        principal=principal,
        operation=acls.ACL_OPERATION_ANY,
        permission=acls.ACL_PERMISSION_ANY,
    )
    request = acls.ListAclsRequest(filter=wanted, page_size=page_size, page_token=page_token)
    return connection.call(connection.acls.ListAcls, request)


def explain_access(
    connection: Connection,
    principal: Principal,
    operation: Operation,
    resource: Resource,
    resource_name: ResourceName = "",
    host: Annotated[Text, Field(description="The client's IP address.")] = "",
) -> Message:
    """Whether a client may do something, which ACL decides, and what the client hears. This is about clients of
    Kafka; the roles of people are not ACLs.
    """
    kind, name = _resource(resource, resource_name)
    request = acls.ExplainClientAccessRequest(
        principal=principal, host=host, operation=_operation(operation), resource_type=kind, resource_name=name
    )
    return connection.call(connection.acls.ExplainClientAccess, request)


def dry_run_acls(
    connection: Connection,
    change: Literal["add", "remove", "enforce"],
    principal: Annotated[Text, Field(description="With add and remove: User:alice.")] = "",
    permission: Literal["allow", "deny"] = "allow",
    operation: Annotated[Text, Field(description="With add and remove: Read, Write, All, ...")] = "All",
    resource: Annotated[Text, Field(description="With add and remove: topic, group, cluster, ...")] = "topic",
    resource_name: ResourceName = "",
    pattern: Pattern = "literal",
    hours: Hours = 24,
) -> Document:
    """Which clients would have been refused in the last hours if ACLs were added or removed, or if the ACLs there are
    were enforced. It changes nothing. `refused` has the uses, `was_allowed` whether the policy of now would allow
    each; `not_known` says what traffic can't tell. The figures need a pipeline that counts traffic. Control checks
    ACLs to add, which needs the role admin.
    """
    before = connection.acl_policy()
    match change:
        case "enforce":
            after = acls.AclPolicy(acls=before.acls, super_users=before.super_users)
        case "add":
            wanted = named_acls(principal, permission, operation, resource, resource_name, pattern).to_add()
            request = acls.CreateAclsRequest(acls=wanted, validate_only=True)
            after = with_acls(before, connection.call(connection.acls.CreateAcls, request).created)
        case "remove":
            [filter_] = named_acls(principal, permission, operation, resource, resource_name, pattern).filters()
            found = connection.pages(connection.acls.ListAcls, acls.ListAclsRequest(filter=filter_))
            after = without_acls(before, [each for page in found for each in page.acls])
    return refused(connection, before, after, hours)


def refused(connection: Connection, before: acls.AclPolicy, after: acls.AclPolicy, hours: float) -> Document:
    """The uses of the last hours that the policy `after` would have refused, as far as a pipeline counts traffic."""
    start = datetime.now(UTC) - timedelta(hours=hours)
    judged, last, answer = judged_traffic(connection, start, before, after)
    return {**document(judged, last), "since": start.isoformat(), "freshness": as_dict(answer.freshness)}


def list_quotas(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Message:
    """The quotas of clients over all gateways: how fast users, client ids and addresses may produce, fetch, ask and
    connect. Gateways throttle a client that exceeds its quota, which can look like lag.
    """
    request = quotas.ListQuotasRequest(page_size=page_size, page_token=page_token)
    return connection.call(connection.quotas.ListQuotas, request)


def list_tenants(connection: Connection, page_size: Size = USUAL_PAGE, page_token: Token = "") -> Message:
    """The tenants: clients with a namespace of their own. Gateways put the prefix before each name of their topics,
    groups and transactional ids. All other tools have full names, with prefixes.
    """
    request = tenants.ListTenantsRequest(page_size=page_size, page_token=page_token)
    return connection.call(connection.tenants.ListTenants, request)


def explain_tenant(
    connection: Connection,
    principal: Principal,
    topic: Annotated[Text, Field(description="A name that the client uses for a topic.")] = "",
) -> Message:
    """The tenant of a client, and the full name of one of its topics. Without a tenant, names are as they are."""
    request = tenants.ExplainTenantRequest(principal=principal, topic=topic)
    return connection.call(connection.tenants.ExplainTenant, request)


def explain_quotas(
    connection: Connection,
    user: Annotated[Text, Field(description="The user, without User:.")] = "",
    client_id: Annotated[Text, Field(description="The client.id.")] = "",
    ip: Annotated[Text, Field(description="The client's IP address.")] = "",
    hours: Hours = 1,
) -> Document:
    """Which quotas count for a client, and how much the client used in the last hours, as far as a pipeline counts
    traffic. `use` is over time, with bytes and calls; without it, use_not_known says why.
    """
    asked = quotas.ExplainClientQuotasRequest(user=user, client_id=client_id, ip=ip)
    made: Document = {"quotas": as_dict(connection.call(connection.quotas.ExplainClientQuotas, asked))}
    if not (user or client_id):
        return {**made, "use_not_known": "traffic is counted by user and client.id, not by address"}
    who = traffic.TrafficFilter(principal=f"User:{user}" if user else "", client=client_id)
    request = traffic.QueryTrafficRequest(filter=who)
    since(request, hours)
    try:
        made["use"] = as_dict(connection.call(connection.traffic.QueryTraffic, request))
    except grpc.RpcError as error:
        made["use_not_known"] = from_rpc(error, connection.endpoint, options={}).message
    return made


def top_traffic(
    connection: Connection,
    by: Annotated[list[Dimension], Field(min_length=1, max_length=4, description="Count for each of these.")],
    measure: Literal["bytes", "records", "calls", "errors"] = "bytes",
    topic: Annotated[Text, Field(description="Only of this topic.")] = "",
    client: Annotated[Text, Field(description="Only of this client.id.")] = "",
    cluster: Annotated[Text, Field(description="Only of this cluster.")] = "",
    api: Annotated[Text, Field(description="Only of this API: Produce, Fetch, ...")] = "",
    hours: Hours = 1,
    most: Size = 10,
) -> Message:
    """The clients, topics or others with the most traffic in the last hours. `freshness` says how far the tables are:
    without a pipeline that counts traffic, they are empty, and an empty answer then says nothing about the mesh.
    """
    request = traffic.TopTalkersRequest(
        by=[traffic.TrafficDimension.Value(f"TRAFFIC_DIMENSION_{each.upper()}") for each in by],
        measure=traffic.TrafficMeasure.Value(f"TRAFFIC_MEASURE_{measure.upper()}"),
        filter=traffic.TrafficFilter(topic=topic, client=client, cluster=cluster, api=api),
        limit=most,
    )
    since(request, hours)
    return connection.call(connection.traffic.TopTalkers, request)


def audit_calls(
    connection: Connection,
    actor: Annotated[Text, Field(description="Only calls of this caller.")] = "",
    only_refused: bool = False,
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The calls that wanted to change the mesh, the newest first: who called what, when, and how it ended. Refused
    calls and dry runs of changes are among them.
    """
    request = admin.ListAuditEventsRequest(
        actor=actor, refused_only=only_refused, page_size=page_size, page_token=page_token
    )
    return connection.call(connection.decisions.ListAuditEvents, request)


def audit_records(
    connection: Connection,
    topic: Annotated[Text, Field(description="Records of this topic.")] = "",
    correlation_id: Annotated[Text, Field(description="Records with this X-Correlation-Id.")] = "",
    trace_id: Annotated[Text, Field(description="Records of this W3C trace.")] = "",
    service: Annotated[Text, Field(description="Only events of this sidecar or gateway.")] = "",
    status: Literal["any", "SUCCESS", "FAILURE"] = "any",
    hours: Annotated[Hours | None, Field(description="Only of the last hours; 24 where no id is given.")] = None,
    page_size: Size = USUAL_PAGE,
    page_token: Token = "",
) -> Message:
    """The outcomes of records, the oldest event first, from the table that a pipeline fills. Payloads are not in it.
    Give a topic, an id or a service. `freshness` says how far the table is behind.
    """
    request = audit.QueryAuditRequest(
        topic=topic, correlation_id=correlation_id, trace_id=trace_id, service_id=service, page_size=page_size,
        page_token=page_token, audit_status="" if status == "any" else status,
    )  # fmt: skip
    if hours is not None:
        since(request, hours)
    return connection.call(connection.audit.Query, request)


def named_acls(
    principal: str, permission: str, operation: str, resource: str, name: str, pattern: Pattern, host: str = ""
) -> Named:
    """The ACLs that one tool call names."""
    if not principal:
        raise MeshctlError("name a principal: User:alice", ExitCode.BAD_REQUEST)
    allows = permission == "allow"
    return Named(
        allowed=[principal] if allows else [],
        denied=[] if allows else [principal],
        hosts=[host] if host else (),
        operations=[_operation(operation)],
        resources=[_resource(resource, name)],
        pattern=pattern,
    )


def _operation(word: str) -> acls.AclOperation.ValueType:
    number: acls.AclOperation.ValueType = OPERATION.convert(word, None, None)
    return number


def _resource(word: str, name: str) -> tuple[acls.AclResourceType.ValueType, str]:
    kind, whole = RESOURCE.convert(f"{word}:{name}", None, None)
    return kind, whole
