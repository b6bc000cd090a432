"""The operations that a cluster's own ACLs allow the mesh on one resource, as Kafka describes them (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from mesh.acls import Operation, ResourceType

REQUEST_S: Final = 4.0
_FORBIDDEN: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
"""The mesh may not even describe the resource."""
_ABSENT: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND}


def own_operations(client: AdminClient, kind: ResourceType, name: str) -> frozenset[Operation] | None:
    """The operations; None if the cluster does not tell them: it has no such resource, or is too old."""
    try:
        described: Any = _asked(client, kind, name).result(REQUEST_S)
    except KafkaException as error:
        code = error.args[0].code()
        if code in _FORBIDDEN:
            return frozenset()
        if code in _ABSENT:
            return None
        raise
    told: Iterable[Any] | None = described.authorized_operations
    return None if told is None else frozenset(Operation(each.value) for each in told)


def _asked(client: AdminClient, kind: ResourceType, name: str) -> Any:
    bounds: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": REQUEST_S}
    match kind:
        case ResourceType.TOPIC:
            return client.describe_topics(TopicCollection([name]), **bounds)[name]
        case ResourceType.GROUP:
            return client.describe_consumer_groups([name], **bounds)[name]
        case _:
            return client.describe_cluster(**bounds)
