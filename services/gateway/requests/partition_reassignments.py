"""AlterPartitionReassignments and ListPartitionReassignments: clients see one virtual broker for each partition.

Replicas are the clusters' own affair: nothing can be moved between brokers that clients do not see, and no move of
those shows here. Kafka's tools ask for the list before they describe topics, so it is answered, and empty.
"""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from services.gateway.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle_alter(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    message = request.decode(AlterPartitionReassignmentsRequest)
    responses = []
    for topic in message.topics:
        owner = mesh.table.cluster_of(topic.name)
        answers = [_refused(topic.name, partition, owner) for partition in topic.partitions]
        responses.append(ReassignableTopicResponse(topic.name, answers))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change, error_message=None, responses=responses
    )


def handle_list(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    request.decode(ListPartitionReassignmentsRequest)
    return ListPartitionReassignmentsResponse(error_message=None)


def _refused(topic: str, partition: ReassignablePartition, owner: str | None) -> ReassignablePartitionResponse:
    if owner is None:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no forwarding rule matches topic {topic!r}"
    elif partition.replicas is None:
        code, text = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    else:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        text = (
            f"replicas can't be assigned through the mesh: it shows virtual brokers; reassign on cluster {owner} itself"
        )
    return ReassignablePartitionResponse(partition.partition_index, code, text)
