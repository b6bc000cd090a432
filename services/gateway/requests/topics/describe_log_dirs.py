"""DescribeLogDirs: the directories of all real brokers, each named `cluster/broker:path`.

A node with a port or host of its own answers for its cluster. If all nodes share one address, a request does not show
which node it is meant for: each answers for the whole mesh. Topics are shown on their owner alone; data that a former
owner still stores counts in its volumes only.
"""

from services.gateway.requests.plan import Broker, Call, Lane, MeshView, Plan, Request, Unreachable, refresh
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.verdicts import silence
from services.gateway.requests.versions import ask_fitting
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeLogDirsRequest)
    results: list[DescribeLogDirsResult] = []
    places: list[tuple[str, int]] = []
    calls: list[Call] = []
    for cluster in mesh.nodes.clusters_of(mesh.session.asked_node):
        if not mesh.clusters[cluster].brokers:
            yield from refresh(cluster, ())
        brokers = mesh.clusters[cluster].brokers
        if not brokers:
            results.append(DescribeLogDirsResult(ErrorCode.REQUEST_TIMED_OUT, f"{cluster}/?"))
        part = _part(message, cluster, mesh)
        places += [(cluster, broker) for broker in sorted(brokers)]
        calls += [Call(cluster, part, request.version, Broker(b), Lane.CLIENT) for b in sorted(brokers)]
    outcomes = yield from ask_fitting(mesh, calls, DescribeLogDirsResponse)
    for (cluster, broker), outcome in zip(places, outcomes, strict=True):
        place = f"{cluster}/{broker}"
        if isinstance(outcome, Unreachable):
            results.append(DescribeLogDirsResult(silence(outcome).code, f"{place}:?"))
        elif outcome.error_code:
            results.append(DescribeLogDirsResult(outcome.error_code, f"{place}:?"))
        else:
            results += [_shown(result, place, cluster, mesh) for result in outcome.results]
    return DescribeLogDirsResponse(results=results)


def _part(message: DescribeLogDirsRequest, cluster: str, mesh: MeshView) -> DescribeLogDirsRequest:
    """The question for the cluster: if it owns none of the topics, it reports its directories alone."""
    if message.topics is None:
        return message
    return DescribeLogDirsRequest([t for t in message.topics if mesh.table.cluster_of(t.topic) == cluster])


def _shown(result: DescribeLogDirsResult, place: str, cluster: str, mesh: MeshView) -> DescribeLogDirsResult:
    result.log_dir = f"{place}:{result.log_dir}"
    result.topics = [
        topic for topic in result.topics if not is_internal(topic.name) and mesh.table.cluster_of(topic.name) == cluster
    ]
    return result
