"""Which partitions have records that their leader has, and their replicas in sync do not have yet.

A leader counts such records among the last writes of their producers (DescribeProducers). If this leader dies before
its replicas have them, they are lost, and no producer with `acks=all` ever heard that they are stored.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Broker, Call, MeshView, Outcome
from services.gateway.requests.versions import highest_version
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
CONSUMER: Final = -1
"""To a consumer a leader reports the high watermark as the latest offset ..."""
DEBUGGER: Final = -2
"""... and to this replica id the end of its own log (`ListOffsetsRequest.DEBUGGING_REPLICA_ID`)."""
VERSION: Final = 5
"""The last version before flexible messages; it has all that is asked here."""


def questions(
    leader: Place, partitions: Mapping[str, Sequence[int]], timeout_s: float, *, own_names: bool, mesh: MeshView
) -> tuple[Call, Call]:
    """The end of the leader's log first, then the high watermark: whatever is below that end may be compared.

    A broker answers the requests of one connection in their order.
    """
    version = highest_version(mesh, leader.cluster, ApiKey.LIST_OFFSETS, VERSION)

    def ask(replica_id: int) -> Call:
        topics = [
            ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=LATEST) for partition in of_topic])
            for topic, of_topic in partitions.items()
        ]
        message = ListOffsetsRequest(replica_id, READ_UNCOMMITTED, topics)
        target = Broker(leader.broker_id)
        return Call(leader.cluster, message, version, target, timeout_s=timeout_s, own_names=own_names)

    return ask(DEBUGGER), ask(CONSUMER)


def behind_leader(end: Outcome, high_watermark: Outcome) -> set[tuple[str, int]]:
    """The partitions whose replicas lack records; without both answers a partition does not count."""
    ends, watermarks = _offsets(end), _offsets(high_watermark)
    return {place for place, offset in watermarks.items() if offset < ends.get(place, offset)}


def _offsets(outcome: Outcome) -> dict[tuple[str, int], int]:
    if not isinstance(outcome, ListOffsetsResponse):
        return {}
    return {
        (topic.name, partition.partition_index): partition.offset
        for topic in outcome.topics
        for partition in topic.partitions
        if not partition.error_code
    }
