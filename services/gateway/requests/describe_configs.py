"""DescribeConfigs: a topic's settings from its owner, a virtual broker's from a real broker of its cluster.

A virtual node stands for a whole cluster; its answer is that of the cluster's broker of lowest id. The single node
of clients that know only one stands for the mesh's home cluster.
"""

from collections.abc import Generator
from enum import IntEnum
from typing import Any

from services.gateway.requests.group_home import find_home
from services.gateway.requests.plan import (
    AnyBroker,
    Broker,
    Call,
    Command,
    Coordinator,
    MeshView,
    Plan,
    Request,
    Target,
    Unreachable,
    ask_all,
    refresh,
)
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


class Resource(IntEnum):
    """Kinds of resources that have settings (org.apache.kafka.common.config.ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


Place = tuple[str, Target]


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeConfigsRequest)
    results: list[DescribeConfigsResult | None] = []
    calls: list[Call] = []
    called: list[int] = []
    for index, resource in enumerate(message.resources):
        found = yield from place_of(resource, mesh)
        if isinstance(found, DescribeConfigsResult):
            results.append(found)
            continue
        cluster, target = found
        results.append(None)
        called.append(index)
        question = DescribeConfigsRequest(
            resources=[_as_the_cluster_names_it(resource, target)],
            include_synonyms=message.include_synonyms,
            include_documentation=message.include_documentation,
        )
        calls.append(Call(cluster, question, request.version, target))
    outcomes = yield from ask_all(calls, DescribeConfigsResponse)
    for index, outcome in zip(called, outcomes, strict=True):
        resource = message.resources[index]
        if isinstance(outcome, Unreachable):
            text = f"cluster {outcome.cluster} can't be reached: {outcome.reason}"
            results[index] = _failed(resource, ErrorCode.REQUEST_TIMED_OUT, text)
        elif outcome.results:
            results[index] = outcome.results[0]
            outcome.results[0].resource_name = resource.resource_name
    return DescribeConfigsResponse(results=[result for result in results if result is not None])


def place_of(
    resource: DescribeConfigsResource, mesh: MeshView
) -> Generator[Command, Any, Place | DescribeConfigsResult]:
    match resource.resource_type:
        case Resource.TOPIC:
            owner = mesh.table.cluster_of(resource.resource_name)
            if owner is None:
                text = f"no forwarding rule matches topic {resource.resource_name!r}"
                return _failed(resource, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            return owner, AnyBroker()
        case Resource.BROKER | Resource.BROKER_LOGGER:
            return (yield from _real_broker(resource, mesh))
        case Resource.GROUP:
            home = yield from find_home(resource.resource_name, mesh)
            if home is None:
                return _failed(
                    resource, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no cluster knows where the group lives, for now"
                )
            return home, Coordinator(resource.resource_name)
        case other:
            return _failed(resource, ErrorCode.INVALID_REQUEST, f"resources of type {other} are not served by the mesh")


def _real_broker(
    resource: DescribeConfigsResource, mesh: MeshView
) -> Generator[Command, Any, Place | DescribeConfigsResult]:
    cluster = _cluster_of_node(resource.resource_name, mesh)
    if cluster is None:
        known = ", ".join(str(node.node_id) for node in mesh.nodes.all)
        text = f"{resource.resource_name!r} is no broker of the mesh (its brokers: {known})"
        return _failed(resource, ErrorCode.INVALID_REQUEST, text)
    if not mesh.clusters[cluster].brokers:
        yield from refresh(cluster, ())
    brokers = mesh.clusters[cluster].brokers
    if not brokers:
        return _failed(resource, ErrorCode.REQUEST_TIMED_OUT, f"no broker of cluster {cluster} is known yet")
    return cluster, Broker(min(brokers))


def _cluster_of_node(name: str, mesh: MeshView) -> str | None:
    """The cluster that a virtual node stands for; an empty name asks for the defaults of all brokers."""
    home = mesh.table.home.name if mesh.table.home else None
    if name == "":
        return home
    nodes = [node.node_id for node in mesh.nodes.all]
    if not name.isdecimal() or int(name) not in nodes:
        return None
    clusters = [cluster for cluster, node in mesh.nodes.by_cluster.items() if node == int(name)]
    return clusters[0] if len(clusters) == 1 else home


def _as_the_cluster_names_it(resource: DescribeConfigsResource, target: Target) -> DescribeConfigsResource:
    name = resource.resource_name
    if isinstance(target, Broker) and name:
        name = str(target.broker_id)
    return DescribeConfigsResource(
        resource_type=resource.resource_type,
        resource_name=name,
        configuration_keys=resource.configuration_keys,
    )


def _failed(resource: DescribeConfigsResource, code: ErrorCode, text: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
