"""OffsetForLeaderEpoch: "nothing was truncated".

Clients of the mesh never see a leader epoch, so clients that follow Kafka's rules never ask. A client that asks all the
same must not get another cluster's epochs, which mean nothing after a move. The answer "undefined" would make a Java
consumer reset its position. So the answer is that the log of the requested epoch has no end yet.
"""

from services.gateway.requests.plan import MeshView, Plan, Request
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

NO_END = 0x7FFF_FFFF_FFFF_FFFF


def handle(request: Request, mesh: MeshView) -> Plan:
    yield from ()
    message = request.decode(OffsetForLeaderEpochRequest)
    results: list[OffsetForLeaderTopicResult] = []
    for topic in message.topics:
        routed = mesh.table.cluster_of(topic.topic) is not None
        error = ErrorCode.NONE if routed else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results.append(
            OffsetForLeaderTopicResult(
                topic.topic,
                [
                    EpochEndOffset(error, p.partition, p.leader_epoch, NO_END if routed else -1)
                    for p in topic.partitions
                ],
            )
        )
    return OffsetForLeaderEpochResponse(topics=results)
