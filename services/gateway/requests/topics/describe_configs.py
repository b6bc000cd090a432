"""DescribeConfigs: settings are read on the clusters that keep them.

A topic's are on its owner, a group's on its home cluster. A virtual node stands for all brokers of its cluster, and the
broker with the lowest id answers for them. A real broker has a number of its own (`real_brokers`). The single node of
clients that know only one, and the defaults of all brokers, are read from the mesh's home cluster. Subscriptions to
clients' metrics have no owner: they are the same on all clusters, and the home cluster answers.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from services.gateway.requests import real_brokers
from services.gateway.requests.clusters.everywhere import by_home_first
from services.gateway.requests.groups.group_home import find_home
from services.gateway.requests.plan import (
    AnyBroker,
    Broker,
    Call,
    Command,
    MeshView,
    Plan,
    Request,
    Target,
    Unreachable,
    refresh,
)
from services.gateway.requests.verdicts import LEFT_OUT, NO_CLUSTER, Verdict, refusal, silence
from services.gateway.requests.versions import ask_fitting
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
    CLIENT_METRICS = 16
    GROUP = 32


KeptAt = tuple[str, Target]
"""The cluster that keeps a resource's settings, and the broker that is asked for them."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeConfigsRequest)
    results: list[DescribeConfigsResult] = []
    calls: list[Call] = []
    called: list[int] = []
    for index, resource in enumerate(message.resources):
        found = yield from places_of(resource.resource_type, resource.resource_name, mesh)
        results.append(_failed(resource, found if isinstance(found, Verdict) else LEFT_OUT))
        if isinstance(found, Verdict):
            continue
        cluster, target = found[0]
        called.append(index)
        name = upstream_name(resource.resource_name, target)
        question = replace(message, resources=[replace(resource, resource_name=name)])
        calls.append(Call(cluster, question, request.version, target))
    outcomes = yield from ask_fitting(mesh, calls, DescribeConfigsResponse)
    for index, outcome in zip(called, outcomes, strict=True):
        resource = message.resources[index]
        if isinstance(outcome, Unreachable):
            results[index] = _failed(resource, silence(outcome))
        elif outcome.results:
            results[index] = replace(outcome.results[0], resource_name=resource.resource_name)
    return DescribeConfigsResponse(results=results)


def places_of(kind: int, name: str, mesh: MeshView) -> Generator[Command, Any, Sequence[KeptAt] | Verdict]:
    """Every place that keeps settings of this resource, first the one that answers for all; or why none does."""
    match kind:
        case Resource.TOPIC:
            owner = mesh.table.cluster_of(name)
            if owner is None:
                return refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no forwarding rule matches topic {name!r}")
            return [(owner, AnyBroker())]
        case Resource.BROKER | Resource.BROKER_LOGGER:
            return (yield from _brokers(name, mesh))
        case Resource.CLIENT_METRICS:
            everywhere = by_home_first(mesh.table.clusters, mesh)
            return [(cluster, AnyBroker()) for cluster in everywhere] or NO_CLUSTER
        case Resource.GROUP:
            home = yield from find_home(name, mesh, patiently=True)
            if home is None:
                return refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no cluster knows where the group lives, for now")
            return [(home, AnyBroker())]
        case other:
            return refusal(ErrorCode.INVALID_REQUEST, f"resources of type {other} are not served by the mesh")


def upstream_name(name: str, target: Target) -> str:
    """The cluster's name for the resource: a broker's own id, for everything else the clients' name."""
    return str(target.broker_id) if isinstance(target, Broker) and name else name


def clusters_of_node(name: str, mesh: MeshView) -> list[str]:
    """The clusters that a virtual node stands for, home first; an empty name means the defaults of all brokers."""
    clusters = by_home_first(mesh.table.clusters, mesh)
    return [cluster for cluster in clusters if name in ("", str(mesh.nodes.of_cluster(cluster)))]


def _brokers(name: str, mesh: MeshView) -> Generator[Command, Any, Sequence[KeptAt] | Verdict]:
    clusters = clusters_of_node(name, mesh)
    if not clusters:
        return (yield from _real_broker(name, mesh))
    cluster = clusters[0]
    yield from _know_brokers(cluster, mesh)
    brokers = sorted(mesh.clusters[cluster].brokers)
    if not brokers:
        return refusal(ErrorCode.REQUEST_TIMED_OUT, f"no broker of cluster {cluster} is known yet")
    return [(cluster, Broker(broker)) for broker in (brokers if name else brokers[:1])]


def _real_broker(name: str, mesh: MeshView) -> Generator[Command, Any, Sequence[KeptAt] | Verdict]:
    place = real_brokers.place_named(name, mesh)
    if place is not None:
        yield from _know_brokers(place.cluster, mesh)
        if place.broker_id in mesh.clusters[place.cluster].brokers:
            return [(place.cluster, Broker(place.broker_id))]
    return refusal(ErrorCode.INVALID_REQUEST, real_brokers.strange(name, mesh))


def _know_brokers(cluster: str, mesh: MeshView) -> Generator[Command, Any, None]:
    if not mesh.clusters[cluster].brokers:
        yield from refresh(cluster, ())


def _failed(resource: DescribeConfigsResource, verdict: Verdict) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=verdict.code,
        error_message=verdict.text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
