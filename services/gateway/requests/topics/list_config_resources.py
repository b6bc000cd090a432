"""ListConfigResources: resources with settings, over all clusters: topics of owners, virtual brokers, groups, metrics.

Before version 1 it was ListClientMetricsResources, and lists those alone.
"""

from collections.abc import Iterable
from dataclasses import replace

import structlog

from services.gateway.requests.clusters.everywhere import ask_everywhere
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.topic_names import is_internal
from services.gateway.requests.topics.describe_configs import Resource
from services.gateway.requests.verdicts import Verdict, joined, silence
from services.gateway.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

OURS = (Resource.BROKER, Resource.BROKER_LOGGER)
"""Kinds that the gateway itself answers for: clients see virtual brokers."""
KINDS_SINCE = 1

log = structlog.get_logger(__name__)


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(ListConfigResourcesRequest)
    kinds: Iterable[int] = [Resource.CLIENT_METRICS]
    if request.version >= KINDS_SINCE:
        kinds = message.resource_types or list(Resource)
        message = replace(message, resource_types=[kind for kind in kinds if kind not in OURS])
    nodes = [str(node.node_id) for node in mesh.nodes.all]
    found = {(name, int(kind)): None for kind in OURS if kind in kinds for name in nodes}
    if set(kinds) <= set(OURS):
        return _answer(found)
    outcomes = yield from ask_everywhere(mesh, message, request.version, ListConfigResourcesResponse)
    verdicts: dict[str, Verdict] = {}
    for cluster, outcome in outcomes.items():
        if isinstance(outcome, Unreachable):
            verdicts[cluster] = silence(outcome)
            continue
        verdicts[cluster] = Verdict(outcome.error_code)
        for resource in outcome.config_resources:
            if resource.resource_type != Resource.TOPIC or _is_shown(resource.resource_name, cluster, mesh):
                found[resource.resource_name, resource.resource_type] = None
    verdict = joined(verdicts)
    if verdict.code:
        log.warning("resources can't be listed", reason=verdict.text)
        return ListConfigResourcesResponse(error_code=verdict.code)
    return _answer(found)


def _is_shown(topic: str, cluster: str, mesh: MeshView) -> bool:
    return not is_internal(topic) and mesh.table.cluster_of(topic) == cluster


def _answer(found: Iterable[tuple[str, int]]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(config_resources=[ConfigResource(*resource) for resource in found])
