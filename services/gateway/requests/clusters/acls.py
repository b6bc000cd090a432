"""DescribeAcls, CreateAcls, DeleteAcls: an access right is on the clusters that have the resource.

Theory of operation
1. A right on one topic is granted on the topic's owner, and shown from there alone. The right does not follow a topic
   that moves: an operator grants it again, as on a new cluster.
2. All other rights are on every cluster: prefixes and `*`, the cluster itself, tokens, users. So are rights on groups
   and transactional ids: members, offsets and transactions of one of them may be on several clusters, and on others
   tomorrow.
3. A filter deletes the same rights that it shows. The gateway looks these rights up first, so rights on topics outside
   the mesh stay as they are.
4. A cluster without an authorizer has no rights to show or to delete. To grant a right there is an error, because the
   right would not count: SECURITY_DISABLED with a sentence that names the cluster.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.gateway.requests.clusters.everywhere import ask_each
from services.gateway.requests.plan import AnyBroker, Call, Command, Lane, MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import LEFT_OUT, NO_CLUSTER, Verdict, joined, refusal, silence
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from services.gateway.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from services.gateway.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

TOPIC = 2
"""org.apache.kafka.common.resource.ResourceType"""
LITERAL = 3
"""org.apache.kafka.common.resource.PatternType"""
ALL_TOPICS = "*"
WITHOUT_AUTHORIZER = frozenset({ErrorCode.SECURITY_DISABLED})


class Right(NamedTuple):
    """One access right."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(slots=True)
class _Found:
    """The rights that match a filter, each with the clusters that have it, and each cluster's verdict on the filter."""

    rights: dict[Right, list[str]] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return joined(self.verdicts, WITHOUT_AUTHORIZER) if self.verdicts else Verdict(ErrorCode.NONE)


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeAclsRequest)
    [found] = yield from _look_up([message], request.version, mesh)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for right in found.rights:
        resource = resources.setdefault(
            right[:3], DescribeAclsResource(right.resource_type, right.resource_name, right.pattern_type)
        )
        resource.acls.append(AclDescription(right.principal, right.host, right.operation, right.permission_type))
    code, text = found.verdict
    return DescribeAclsResponse(error_code=code, error_message=text, resources=list(resources.values()))


def handle_create(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(CreateAclsRequest)
    verdicts: list[dict[str, Verdict]] = [{} for _ in message.creations]
    parts: dict[str, list[int]] = {}
    for index, creation in enumerate(message.creations):
        for cluster in _clusters_of_creation(creation, mesh):
            parts.setdefault(cluster, []).append(index)
    questions = {name: CreateAclsRequest([message.creations[i] for i in part]) for name, part in parts.items()}
    outcomes = yield from ask_each(mesh, questions, request.version, CreateAclsResponse)
    for name, part in parts.items():
        for index, verdict in zip(part, _verdicts(outcomes[name], len(part)), strict=True):
            verdicts[index][name] = verdict
    results = []
    for creation, told in zip(message.creations, verdicts, strict=True):
        code, text = joined(told, name_one=len(mesh.table.clusters) > 1) if told else _nowhere(creation, mesh)
        results.append(AclCreationResult(code, text))
    return CreateAclsResponse(results=results)


def handle_delete(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DeleteAclsRequest)
    found = yield from _look_up([_as_question(each) for each in message.filters], request.version, mesh)
    verdicts = yield from _delete(found, request.version, mesh)
    results = []
    for each in found:
        code, text = each.verdict
        matching = []
        for right in each.rights:
            right_code, right_text = joined(verdicts[right])
            matching.append(DeleteAclsMatchingAcl(right_code, right_text, *right))
        results.append(DeleteAclsFilterResult(code, text, matching))
    return DeleteAclsResponse(filter_results=results)


# --- where rights lie ------------------------------------------------------------------------------------------------


def _is_about_one_topic(resource_type: int, pattern_type: int, name: str | None) -> bool:
    return resource_type == TOPIC and pattern_type == LITERAL and name not in (None, ALL_TOPICS)


def _clusters_of(resource_type: int, pattern_type: int, name: str | None, mesh: MeshView) -> Iterable[str]:
    if name is None or not _is_about_one_topic(resource_type, pattern_type, name):
        return mesh.table.clusters
    owner = mesh.table.cluster_of(name)
    return () if owner is None else (owner,)


def _clusters_of_creation(creation: AclCreation, mesh: MeshView) -> Iterable[str]:
    return _clusters_of(creation.resource_type, creation.resource_pattern_type, creation.resource_name, mesh)


def _nowhere(creation: AclCreation, mesh: MeshView) -> Verdict:
    if not mesh.table.clusters:
        return NO_CLUSTER
    text = f"no forwarding rule matches topic {creation.resource_name!r} (rules of revision {mesh.table.revision})"
    return refusal(ErrorCode.INVALID_REQUEST, text)


def _is_shown(right: Right, cluster: str, mesh: MeshView) -> bool:
    """Whether the right counts on this cluster: a right on one topic counts on its owner alone.

    Rights on the topic elsewhere are from another time, or were granted outside the mesh.
    """
    if not _is_about_one_topic(right.resource_type, right.pattern_type, right.resource_name):
        return True
    return mesh.table.cluster_of(right.resource_name) == cluster


# --- questions to clusters -------------------------------------------------------------------------------------------


def _look_up(
    filters: Sequence[DescribeAclsRequest], version: int, mesh: MeshView
) -> Generator[Command, Any, list[_Found]]:
    """The rights that match each of the filters."""
    places = [
        (index, cluster)
        for index, each in enumerate(filters)
        for cluster in _clusters_of(
            each.resource_type_filter, each.pattern_type_filter, each.resource_name_filter, mesh
        )
    ]
    calls = [Call(cluster, filters[index], version, AnyBroker(), Lane.CLIENT) for index, cluster in places]
    outcomes = yield from ask_fitting(mesh, calls, DescribeAclsResponse)
    found = [_Found() for _ in filters]
    for (index, cluster), outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, Unreachable):
            found[index].verdicts[cluster] = silence(outcome)
            continue
        found[index].verdicts[cluster] = Verdict(outcome.error_code, outcome.error_message)
        for right in _rights_of(outcome):
            if _is_shown(right, cluster, mesh):
                found[index].rights.setdefault(right, []).append(cluster)
    return found


def _rights_of(answer: DescribeAclsResponse) -> Iterable[Right]:
    for resource in answer.resources:
        for acl in resource.acls:
            yield Right(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )


def _delete(
    found: Iterable[_Found], version: int, mesh: MeshView
) -> Generator[Command, Any, dict[Right, dict[str, Verdict]]]:
    """Delete each right on each cluster that has it, once; the verdicts by right and cluster."""
    parts: dict[str, dict[Right, None]] = {}
    for each in found:
        for right, clusters in each.rights.items():
            for cluster in clusters:
                parts.setdefault(cluster, {})[right] = None
    questions = {name: DeleteAclsRequest([DeleteAclsFilter(*right) for right in part]) for name, part in parts.items()}
    outcomes = yield from ask_each(mesh, questions, version, DeleteAclsResponse)
    verdicts: dict[Right, dict[str, Verdict]] = {}
    for name, part in parts.items():
        for right, verdict in zip(part, _verdicts(outcomes[name], len(part)), strict=True):
            verdicts.setdefault(right, {})[name] = verdict
    return verdicts


def _verdicts(outcome: CreateAclsResponse | DeleteAclsResponse | Unreachable, count: int) -> list[Verdict]:
    """One verdict for each item of the request: clusters answer in the order of the request."""
    if isinstance(outcome, Unreachable):
        return [silence(outcome)] * count
    if isinstance(outcome, CreateAclsResponse):
        told = [Verdict(result.error_code, result.error_message) for result in outcome.results]
    else:
        told = [_verdict_on_right(result) for result in outcome.filter_results]
    return (told + [LEFT_OUT] * count)[:count]


def _verdict_on_right(result: DeleteAclsFilterResult) -> Verdict:
    """The verdict on a filter that names one right; another client may have deleted that right already."""
    failed = next((acl for acl in result.matching_acls if acl.error_code), None)
    if failed is not None and not result.error_code:
        return Verdict(failed.error_code, failed.error_message)
    return Verdict(result.error_code, result.error_message)


def _as_question(each: DeleteAclsFilter) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        each.resource_type_filter,
        each.resource_name_filter,
        each.pattern_type_filter,
        each.principal_filter,
        each.host_filter,
        each.operation,
        each.permission_type,
    )
