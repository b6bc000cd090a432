"""DescribeTopicPartitions: the topics of the mesh in the order of their names, page by page.

A page is cut from the merged topics, so its cursor means the same on every gateway. Each page asks the clusters anew:
the client sees a topic that was created or deleted meanwhile, or does not, as with a broker.
"""

from collections.abc import Iterable

from services.gateway.requests.mesh.metadata import described
from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from services.gateway.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

PAGE_PARTITIONS = 2000
"""Partitions of one page at most, whatever the client asks for: brokers' `max.request.partition.size.limit`."""


def handle(request: Request, mesh: MeshView) -> Plan:
    message = request.decode(DescribeTopicPartitionsRequest)
    cursor = message.cursor
    if cursor is not None and cursor.partition_index < 0:
        return _refused(message, ErrorCode.INVALID_REQUEST)
    begin = (cursor.topic_name, cursor.partition_index) if cursor is not None else ("", 0)
    names = {topic.name for topic in message.topics}
    if names and cursor is not None:
        names = {name for name in names if name >= cursor.topic_name} | {cursor.topic_name}
    topics = yield from described(mesh, sorted(names) if message.topics else None)
    size = max(1, min(message.response_partition_limit, PAGE_PARTITIONS))
    return _page((topic for topic in topics if str(topic.name) >= begin[0]), begin, size)


def _page(
    topics: Iterable[MetadataResponseTopic], begin: tuple[str, int], size: int
) -> DescribeTopicPartitionsResponse:
    """Up to `size` partitions from `begin` on, and the cursor of the next page."""
    page = DescribeTopicPartitionsResponse()
    left = size
    for topic in topics:
        name = str(topic.name)
        first = begin[1] if name == begin[0] else 0
        partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
        rest = [partition for partition in partitions if partition.partition_index >= first]
        if not left and rest:
            page.next_cursor = Cursor(name, first)
            return page
        page.topics.append(_described(topic, rest[:left]))
        if len(rest) > left:
            page.next_cursor = Cursor(name, rest[left].partition_index)
            return page
        left -= len(rest)
    return page


def _described(
    topic: MetadataResponseTopic, partitions: list[MetadataResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition.error_code,
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                partition.replica_nodes,
                partition.isr_nodes,
                eligible_leader_replicas=[],  # the Java admin client fails on null
                last_known_elr=[],
            )
            for partition in partitions
        ],
        topic_authorized_operations=topic.topic_authorized_operations,
    )


def _refused(message: DescribeTopicPartitionsRequest, error: ErrorCode) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error, topic.name) for topic in message.topics]
    )
