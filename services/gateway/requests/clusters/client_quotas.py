"""DescribeClientQuotas and AlterClientQuotas: about the quotas of the mesh if it has any, else about those of clusters.

The mesh's quotas are in the table, so the gateway shows them by itself, and control changes them. Then quotas of
clusters are neither shown nor changed; brokers go on to throttle by them.

While the mesh has no quota, a quota is set on every cluster, and shown once. It bounds the load that brokers accept
from a user, client id or address, each cluster for itself. Clusters may have different values, because somebody set a
quota outside the mesh. Then the answer shows the home cluster's value, and a line in the log names all.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import structlog

from mesh import quotas
from mesh.quotas.codec import entity_to_proto, key_to_proto, policy_from_proto
from mesh.rpc import kafka_changes as pb_changes
from mesh.rpc import quotas as pb
from services.gateway.requests.clusters.control_changes import change
from services.gateway.requests.clusters.everywhere import ask_everywhere, by_home_first
from services.gateway.requests.plan import MeshView, Plan, Request, Unreachable
from services.gateway.requests.verdicts import DONE, LEFT_OUT, Verdict, joined, refusal, silence
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)
from services.gateway.wire.messages.alter_client_quotas import EntityData as AlteredEntity
from services.gateway.wire.messages.alter_client_quotas import EntryData as AlteredEntry
from services.gateway.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

Entity = frozenset[tuple[str, str | None]]
"""The entity that a quota bounds: (kind, name) of each part, where the name None is the default."""
OfClusters = dict[Entity, dict[str, dict[str, float]]]
"""Entity -> key of the quota -> cluster -> value."""

KINDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""Kafka's word for a part of an entity -> ours."""
EXACT, DEFAULT, ANY = 0, 1, 2
"""Match types of Kafka's filter."""
NO_QUOTAS: Final = pb.QuotaPolicy()
UNREADABLE: Final = "the filter has an entity type or a match type that the gateway does not know, or a type twice"

log = structlog.get_logger(__name__)


def handle_describe(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeClientQuotasRequest)
    if _has_own(mesh):
        return _described(message, mesh)
    outcomes = yield from ask_everywhere(mesh, message, request.version, DescribeClientQuotasResponse)
    known: OfClusters = {}
    verdicts: dict[str, Verdict] = {}
    for cluster in by_home_first(outcomes, mesh):
        outcome = outcomes[cluster]
        if isinstance(outcome, Unreachable):
            verdicts[cluster] = silence(outcome)
            continue
        verdicts[cluster] = Verdict(outcome.error_code, outcome.error_message)
        for entry in outcome.entries or ():
            of_entity = known.setdefault(_entity(entry.entity), {})
            for value in entry.values:
                of_entity.setdefault(value.key, {})[cluster] = value.value
    code, text = joined(verdicts)
    if code:
        return DescribeClientQuotasResponse(error_code=code, error_message=text, entries=None)
    _tell_differences(known, verdicts)
    return DescribeClientQuotasResponse(error_message=None, entries=[_shown(*each) for each in known.items()])


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(AlterClientQuotasRequest)
    if _has_own(mesh):
        return (yield from _altered(message, mesh))
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


# --- quotas of the mesh ----------------------------------------------------------------------------------------------


def _has_own(mesh: MeshView) -> bool:
    policy = mesh.table.policies.quota_policy
    return policy is not None and bool(policy.quotas)


def _described(message: DescribeClientQuotasRequest, mesh: MeshView) -> DescribeClientQuotasResponse:
    """The mesh's quotas that the filter matches, as KIP-546 says."""
    wanted = {each.entity_type: each for each in message.components}
    if len(wanted) < len(message.components) or not wanted.keys() <= KINDS.keys() or not _is_known(wanted.values()):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=UNREADABLE, entries=None
        )
    found: dict[quotas.Entity, list[ValueData]] = {}
    for quota in policy_from_proto(mesh.table.policies.quota_policy or NO_QUOTAS).quotas:
        parts = _parts(quota.entity)
        if all(_matches(each, parts) for each in wanted.values()) and (
            not message.strict or parts.keys() == wanted.keys()
        ):
            found.setdefault(quota.entity, []).append(ValueData(quota.key.value, quota.value))
    entries = [
        EntryData([EntityData(kind, name) for kind, name in _parts(entity).items()], values)
        for entity, values in found.items()
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _altered(message: AlterClientQuotasRequest, mesh: MeshView) -> Plan:
    """Control makes all changes of a request, or none."""
    made: pb_changes.KafkaChangeResponse | Verdict
    try:
        changes = [each for entry in message.entries for each in _changes(entry)]
    except ValueError as error:
        made = refusal(ErrorCode.INVALID_REQUEST, str(error))
    else:
        wanted = pb.ChangeQuotasRequest(changes=changes, validate_only=message.validate_only)
        made = yield from change(mesh.session, change_quotas=wanted)
    verdict = made if isinstance(made, Verdict) else DONE
    return AlterClientQuotasResponse(entries=[EntryResult(*verdict, each.entity) for each in message.entries])


def _changes(entry: AlteredEntry) -> Iterable[pb.QuotaChange]:
    """ValueError if control knows no such entity or key."""
    parts = {each.entity_type: each.entity_name for each in entry.entity}
    unknown = parts.keys() - KINDS.keys()
    if unknown or len(parts) < len(entry.entity):
        raise ValueError(f"{', '.join(sorted(unknown)) or 'an entity type'} is not known, or stands twice")
    names = {KINDS[kind]: quotas.DEFAULT if name is None else name for kind, name in parts.items()}
    entity = entity_to_proto(quotas.Entity(**names))
    for op in entry.ops:
        key = key_to_proto(quotas.Key(op.key))
        yield pb.QuotaChange(entity=entity, key=key, value=None if op.remove else op.value)


def _is_known(components: Iterable[ComponentData]) -> bool:
    return all(each.match_type in (EXACT, DEFAULT, ANY) for each in components)


def _parts(entity: quotas.Entity) -> dict[str, str | None]:
    """The parts of an entity by Kafka's words; None is the default."""
    parts = {kind: getattr(entity, attribute) for kind, attribute in KINDS.items()}
    return {kind: None if name is quotas.DEFAULT else name for kind, name in parts.items() if name is not None}


def _matches(component: ComponentData, parts: Mapping[str, str | None]) -> bool:
    if component.entity_type not in parts:
        return False
    name = parts[component.entity_type]
    if component.match_type == EXACT:
        return name is not None and name == component.match
    return component.match_type == ANY or name is None


# --- quotas of clusters ----------------------------------------------------------------------------------------------


def _entity(parts: list[EntityData] | list[AlteredEntity]) -> Entity:
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def _shown(entity: Entity, values: Mapping[str, Mapping[str, float]]) -> EntryData:
    return EntryData(
        [EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])],
        [ValueData(key, next(iter(by_cluster.values()))) for key, by_cluster in values.items()],
    )


def _tell_differences(known: OfClusters, clusters: Mapping[str, object]) -> None:
    for entity, values in known.items():
        for key, by_cluster in values.items():
            if len(by_cluster) < len(clusters) or len(set(by_cluster.values())) > 1:
                log.warning(
                    "clusters have different quotas",
                    entity=dict(entity),
                    quota=key,
                    values={cluster: by_cluster.get(cluster) for cluster in clusters},
                )
