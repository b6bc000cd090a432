"""AlterConfigs and IncrementalAlterConfigs: settings are changed on the clusters where DescribeConfigs reads them.

The placement is that of DescribeConfigs itself, so DescribeConfigs reads the settings that were written, and a change
for one cluster's brokers reaches no other cluster. A resource that stands for several brokers or clusters is changed on
each of them: a virtual node for all brokers of its cluster, subscriptions to clients' metrics for all clusters. If it
is unclear which cluster is meant, the change is refused. With several clusters this concerns the defaults of all
brokers, and the single node of clients that know only one. The settings of a group go to every cluster, because the
group may have no home yet. An empty group may also move to another cluster with its next member. If the group has
members, its home alone decides whether the change is made.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from services.gateway.requests import real_brokers
from services.gateway.requests.groups.group_home import find_home, lives
from services.gateway.requests.plan import AnyBroker, Broker, Call, Command, Lane, MeshView, Plan, Request, Unreachable
from services.gateway.requests.topics.describe_configs import (
    KeptAt,
    Resource,
    clusters_of_node,
    places_of,
    upstream_name,
)
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, joined, refusal, silence
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import alter_configs as whole
from services.gateway.wire.messages import incremental_alter_configs as incremental
from services.gateway.wire.schema import Struct

R = TypeVar("R", whole.AlterConfigsResource, incremental.AlterConfigsResource)
LACKS_THE_SETTING = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION})
"""Answers of a cluster that is too old for a setting: no group that needs the setting can have its home there."""

log = structlog.get_logger(__name__)

A = TypeVar("A", whole.AlterConfigsResponse, incremental.IncrementalAlterConfigsResponse)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(whole.AlterConfigsRequest)

    def question(part: list[whole.AlterConfigsResource]) -> Struct:
        return whole.AlterConfigsRequest(resources=part, validate_only=message.validate_only)

    verdicts = yield from _alter(message.resources, question, whole.AlterConfigsResponse, request.version, mesh)
    return whole.AlterConfigsResponse(
        responses=[
            whole.AlterConfigsResourceResponse(
                verdict.code, verdict.text, resource.resource_type, resource.resource_name
            )
            for resource, verdict in zip(message.resources, verdicts, strict=True)
        ]
    )


def handle_incremental(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(incremental.IncrementalAlterConfigsRequest)

    def question(part: list[incremental.AlterConfigsResource]) -> Struct:
        return incremental.IncrementalAlterConfigsRequest(resources=part, validate_only=message.validate_only)

    answer = incremental.IncrementalAlterConfigsResponse
    verdicts = yield from _alter(message.resources, question, answer, request.version, mesh)
    return incremental.IncrementalAlterConfigsResponse(
        responses=[
            incremental.AlterConfigsResourceResponse(
                verdict.code, verdict.text, resource.resource_type, resource.resource_name
            )
            for resource, verdict in zip(message.resources, verdicts, strict=True)
        ]
    )


def _alter(
    resources: Sequence[R], question: Callable[[list[R]], Struct], answer: type[A], version: int, mesh: MeshView
) -> Generator[Command, Any, list[Verdict]]:
    """The verdict on each resource, in their order; resources of one place go in one call."""
    verdicts: list[dict[str, Verdict]] = [{} for _ in resources]
    parts: dict[KeptAt, list[tuple[int, R]]] = {}
    for index, resource in enumerate(resources):
        found = yield from _places(resource.resource_type, resource.resource_name, mesh)
        if isinstance(found, Verdict):
            verdicts[index][""] = found
            continue
        for place in found:
            named = replace(resource, resource_name=upstream_name(resource.resource_name, place[1]))
            parts.setdefault(place, []).append((index, named))
    calls = [
        Call(cluster, question([resource for _, resource in part]), version, target, Lane.CLIENT)
        for (cluster, target), part in parts.items()
    ]
    outcomes = yield from ask_fitting(mesh, calls, answer)
    for (place, part), outcome in zip(parts.items(), outcomes, strict=True):
        told: dict[tuple[int, str], Verdict] = {}
        otherwise = LEFT_OUT
        if isinstance(outcome, Unreachable):
            otherwise = silence(outcome)
        else:
            told = {
                (r.resource_type, r.resource_name): Verdict(r.error_code, r.error_message) for r in outcome.responses
            }
        for index, resource in part:
            verdicts[index][_name_of(place)] = told.get((resource.resource_type, resource.resource_name), otherwise)
    return [
        _of_group(resource.resource_name, each, mesh) if resource.resource_type == Resource.GROUP else joined(each)
        for resource, each in zip(resources, verdicts, strict=True)
    ]


def _places(kind: int, name: str, mesh: MeshView) -> Generator[Command, Any, Sequence[KeptAt] | Verdict]:
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER):
        clusters = clusters_of_node(name, mesh)
        if len(clusters) > 1:
            what = f"broker {name} stands for all clusters" if name else "the defaults of all brokers are one cluster's"
            text = (
                f"{what}, and the mesh has several ({', '.join(mesh.table.clusters)}): name a real broker "
                f"({real_brokers.listed(mesh.table.clusters, mesh)}), or make the change on the cluster itself"
            )
            return refusal(ErrorCode.INVALID_REQUEST, text)
    if kind == Resource.GROUP and mesh.table.clusters:
        home = yield from find_home(name, mesh)
        homes = [] if home is None else [home]
        return [(cluster, AnyBroker()) for cluster in dict.fromkeys([*homes, *mesh.table.clusters])]
    return (yield from places_of(kind, name, mesh))


def _of_group(group_id: str, verdicts: Mapping[str, Verdict], mesh: MeshView) -> Verdict:
    """`verdicts`: the verdict of the group's home comes first."""
    home = next(iter(verdicts))
    if not lives(group_id, mesh):
        return joined(verdicts, LACKS_THE_SETTING)
    if any(verdict.code for cluster, verdict in verdicts.items() if cluster != home):
        log.info("settings of a group are on its home alone", group=group_id, home=home, reason=joined(verdicts).text)
    return verdicts[home]


def _name_of(place: KeptAt) -> str:
    cluster, target = place
    return f"{cluster}/{target.broker_id}" if isinstance(target, Broker) else cluster
