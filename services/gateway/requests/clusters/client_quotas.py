"""DescribeClientQuotas and AlterClientQuotas: a quota is set on every cluster, and shown once.

A quota bounds the load that brokers accept from a user, client id or address, each cluster for itself. Clusters may
have different values, because somebody set a quota outside the mesh. Then the answer shows the home cluster's value,
and a line in the log names all.
"""

from collections.abc import Mapping

import structlog

from services.gateway.requests.clusters.everywhere import ask_everywhere, by_home_first
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import LEFT_OUT, Verdict, joined, silence
from services.gateway.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)
from services.gateway.wire.messages.alter_client_quotas import EntityData as AlteredEntity
from services.gateway.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

Entity = frozenset[tuple[str, str | None]]
"""The entity that a quota bounds: (kind, name) of each part, where the name None is the default."""
Quotas = dict[Entity, dict[str, dict[str, float]]]
"""Entity -> key of the quota -> cluster -> value."""

log = structlog.get_logger(__name__)


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeClientQuotasRequest)
    outcomes = yield from ask_everywhere(mesh, message, request.version, DescribeClientQuotasResponse)
    quotas: Quotas = {}
    verdicts: dict[str, Verdict] = {}
    for cluster in by_home_first(outcomes, mesh):
        outcome = outcomes[cluster]
        if isinstance(outcome, Unreachable):
            verdicts[cluster] = silence(outcome)
            continue
        verdicts[cluster] = Verdict(outcome.error_code, outcome.error_message)
        for entry in outcome.entries or ():
            of_entity = quotas.setdefault(_entity(entry.entity), {})
            for value in entry.values:
                of_entity.setdefault(value.key, {})[cluster] = value.value
    code, text = joined(verdicts)
    if code:
        return DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)
    _tell_differences(quotas, verdicts)
    return DescribeClientQuotasResponse(error_message=None, entries=[_shown(*each) for each in quotas.items()])


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AlterClientQuotasRequest)
    outcomes = yield from ask_everywhere(mesh, message, request.version, AlterClientQuotasResponse)
    verdicts: list[dict[str, Verdict]] = [{} for _ in message.entries]
    for cluster, outcome in outcomes.items():
        told: dict[Entity, Verdict] = {}
        otherwise = LEFT_OUT
        if isinstance(outcome, Unreachable):
            otherwise = silence(outcome)
        else:
            told = {_entity(e.entity): Verdict(e.error_code, e.error_message) for e in outcome.entries}
        for index, entry in enumerate(message.entries):
            verdicts[index][cluster] = told.get(_entity(entry.entity), otherwise)
    results = []
    for entry, verdict in zip(message.entries, verdicts, strict=True):
        results.append(EntryResult(*joined(verdict), entry.entity))
    return AlterClientQuotasResponse(entries=results)


def _entity(parts: list[EntityData] | list[AlteredEntity]) -> Entity:
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def _shown(entity: Entity, values: Mapping[str, Mapping[str, float]]) -> EntryData:
    return EntryData(
        [EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])],
        [ValueData(key, next(iter(by_cluster.values()))) for key, by_cluster in values.items()],
    )


def _tell_differences(quotas: Quotas, clusters: Mapping[str, object]) -> None:
    for entity, values in quotas.items():
        for key, by_cluster in values.items():
            if len(by_cluster) < len(clusters) or len(set(by_cluster.values())) > 1:
                log.warning(
                    "clusters have different quotas",
                    entity=dict(entity),
                    quota=key,
                    values={cluster: by_cluster.get(cluster) for cluster in clusters},
                )
