"""Reads and changes the ACLs that a cluster itself has. Each function raises KafkaException."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from mesh.rpc import acls

REQUEST_S: Final = 4.0
_KINDS: Final = (ResourceType.TOPIC, ResourceType.GROUP)


class AclsHiddenError(RuntimeError):
    """The cluster does not let the mesh read or change its ACLs; the message says so."""


def cluster_acls(client: AdminClient) -> list[acls.Acl] | None:
    """The ACLs about topics and groups; None if the cluster has no authorizer."""
    asked = [client.describe_acls(_every(kind), request_timeout=REQUEST_S) for kind in _KINDS]
    try:
        found = [each for future in asked for each in future.result(REQUEST_S)]
    except KafkaException as error:
        if error.args[0].code() == KafkaError.SECURITY_DISABLED:
            return None
        raise _refusal(error) from error
    return [
        acls.Acl(
            resource_type=each.restype.value,
            resource_name=each.name,
            pattern_type=each.resource_pattern_type.value,
            principal=each.principal,
            host=each.host,
            operation=each.operation.value,
            permission=each.permission_type.value,
        )
        for each in found
    ]


def create_cluster_acls(client: AdminClient, new: Sequence[acls.Acl]) -> None:
    """Those that are there already stay."""
    if new:
        for future in client.create_acls(list(map(_binding, new)), request_timeout=REQUEST_S).values():
            _done(future)


def delete_cluster_acls(client: AdminClient, old: Sequence[acls.Acl]) -> None:
    """Exactly these; those that are gone already count as deleted."""
    if old:
        for future in client.delete_acls([_filter(each) for each in old], request_timeout=REQUEST_S).values():
            _done(future)


def _done(future: Future[Any]) -> None:
    try:
        future.result(REQUEST_S)
    except KafkaException as error:
        raise _refusal(error) from error


def _refusal(error: KafkaException) -> Exception:
    if error.args[0].code() != KafkaError.CLUSTER_AUTHORIZATION_FAILED:
        return error
    return AclsHiddenError("a cluster refuses the mesh its ACLs: give its user Describe and Alter on the cluster")


def _every(kind: ResourceType) -> Any:
    # its types know no condition that is left out
    every: Any = AclBindingFilter
    return every(kind, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)


def _binding(of: acls.Acl) -> AclBinding:
    return AclBinding(*_fields(of))


def _filter(of: acls.Acl) -> AclBindingFilter:
    return AclBindingFilter(*_fields(of))


def _fields(of: acls.Acl) -> tuple[Any, ...]:
    return (
        ResourceType(of.resource_type),
        of.resource_name,
        ResourcePatternType(of.pattern_type),
        of.principal,
        of.host,
        AclOperation(of.operation),
        AclPermissionType(of.permission),
    )
