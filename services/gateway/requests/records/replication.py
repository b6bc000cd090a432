"""Which partitions have records that their leader has, and their replicas in sync do not have yet.

A leader counts such records among the last writes of their producers (DescribeProducers). If this leader dies before
its replicas have them, they are lost, and no producer with `acks=all` ever heard that they are stored.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from mesh.transactions import LogPlace
from services.gateway.requests.placement import Place
from services.gateway.requests.plan import Call, MeshView, Outcome
from services.gateway.requests.transactions.stable_offsets import CONSUMER, READ_UNCOMMITTED, question
from services.gateway.wire.messages.list_offsets import ListOffsetsResponse

DEBUGGER: Final = -2
"""To this replica id a leader reports the end of its own log, and to a consumer the high watermark
(`ListOffsetsRequest.DEBUGGING_REPLICA_ID`)."""


def questions(
    leader: Place, partitions: Mapping[str, Sequence[int]], timeout_s: float, *, own_names: bool, mesh: MeshView
) -> list[Call]:
    """The end of the leader's log first, then the high watermark: whatever is below that end may be compared.

    A broker answers the requests of one connection in their order.
    """
    places = [LogPlace(leader.cluster, topic, number) for topic, numbers in partitions.items() for number in numbers]
    return [
        question(
            leader, places, READ_UNCOMMITTED, mesh, replica_id=replica_id, own_names=own_names, timeout_s=timeout_s
        )
        for replica_id in (DEBUGGER, CONSUMER)
    ]


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
