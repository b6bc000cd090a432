"""AlterConfigs and IncrementalAlterConfigs: settings are changed where DescribeConfigs reads them.

The placement is that of DescribeConfigs itself, so what was written is what is read, and a change for one cluster's
broker reaches no other. The defaults of all brokers (an empty name) are one cluster's too: with several clusters
nobody can tell whose are meant, and the change is refused.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from services.gateway.requests import describe_configs
from services.gateway.requests.describe_configs import Place, Resource
from services.gateway.requests.plan import Broker, Call, Command, Lane, MeshView, Plan, Request, Unreachable, ask_all
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import alter_configs as whole
from services.gateway.wire.messages import incremental_alter_configs as incremental
from services.gateway.wire.messages.describe_configs import DescribeConfigsResource, DescribeConfigsResult
from services.gateway.wire.schema import Struct

R = TypeVar("R", whole.AlterConfigsResource, incremental.AlterConfigsResource)
A = TypeVar("A", whole.AlterConfigsResponse, incremental.IncrementalAlterConfigsResponse)


class Verdict(NamedTuple):
    """What became of one resource."""

    code: int
    text: str | None


LEFT_OUT = Verdict(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer left it out")


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
    """The verdict on each resource, in their order; resources of one place travel together."""
    verdicts = [LEFT_OUT] * len(resources)
    parts: dict[Place, list[tuple[int, R]]] = {}
    for index, resource in enumerate(resources):
        place = yield from _place(resource.resource_type, resource.resource_name, mesh)
        if isinstance(place, Verdict):
            verdicts[index] = place
        else:
            parts.setdefault(place, []).append((index, _as_the_cluster_names_it(resource, place)))
    calls = [
        Call(cluster, question([resource for _, resource in part]), version, target, Lane.CLIENT)
        for (cluster, target), part in parts.items()
    ]
    outcomes = yield from ask_all(calls, answer)
    for part, outcome in zip(parts.values(), outcomes, strict=True):
        told: dict[tuple[int, str], Verdict] = {}
        otherwise = LEFT_OUT
        if isinstance(outcome, Unreachable):
            text = f"cluster {outcome.cluster} can't be reached: {outcome.reason}"
            otherwise = Verdict(ErrorCode.REQUEST_TIMED_OUT, text)
        else:
            told = {
                (r.resource_type, r.resource_name): Verdict(r.error_code, r.error_message) for r in outcome.responses
            }
        for index, resource in part:
            verdicts[index] = told.get((resource.resource_type, resource.resource_name), otherwise)
    return verdicts


def _place(kind: int, name: str, mesh: MeshView) -> Generator[Command, Any, Place | Verdict]:
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER) and name == "" and len(mesh.table.clusters) > 1:
        clusters = ", ".join(mesh.table.clusters)
        text = (
            f"the defaults of all brokers belong to one cluster, and the mesh has several ({clusters}): "
            "name a broker, or set them on the cluster itself"
        )
        return Verdict(ErrorCode.INVALID_REQUEST, text)
    described = DescribeConfigsResource(resource_type=kind, resource_name=name)
    found = yield from describe_configs.place_of(described, mesh)
    if isinstance(found, DescribeConfigsResult):
        return Verdict(found.error_code, found.error_message)
    return found


def _as_the_cluster_names_it(resource: R, place: Place) -> R:
    _, target = place
    if isinstance(target, Broker) and resource.resource_name:
        return replace(resource, resource_name=str(target.broker_id))
    return resource
