"""Positions of groups that keep a text with an offset: asked of the groups' coordinators in raw requests.

librdkafka's admin client copies such a text without its end, and confluent-kafka reads on behind it in memory: the text
has foreign bytes at its end, or is no text at all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, Int16, Int32, Int64, Schema

from mesh.exact_requests import Exactly
from mesh.routing import UpstreamCluster
from services.control.upstream.broker_connections import GROUP, BrokerConnections, CoordinatorRefusedError
from services.control.upstream.connections import UnreachableError
from services.control.upstream.offsets import Position, StablePositions
from services.control.upstream.transaction_messages import NAME, TAGS

ASK_S: Final = 8.0
"""Seconds for all groups of a topic."""
UNSTABLE: Final = 88
END: Final = "\0"
"""confluent-kafka ends each text that it commits so."""
NOT_FOUND: Final = 69
"""The group was deleted just now."""


class OffsetFetchResponse_v7(Response):  # type: ignore[misc]  # noqa: N801  # aiokafka: no types, its names
    API_KEY = 9
    API_VERSION = 7
    _PARTITION = CompactArray(
        ("partition", Int32),
        ("offset", Int64),
        ("leader_epoch", Int32),
        ("metadata", NAME),
        ("error_code", Int16),
        TAGS,
    )
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("topics", CompactArray(("topic", NAME), ("partitions", _PARTITION), TAGS)),
        ("error_code", Int16),
        TAGS,
    )


class OffsetFetchRequest_v7(RequestStruct):  # type: ignore[misc]  # noqa: N801
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = OffsetFetchResponse_v7
    SCHEMA = Schema(
        ("group_id", NAME),
        ("topics", CompactArray(("topic", NAME), ("partitions", CompactArray(Int32)), TAGS)),
        ("require_stable", Boolean),
        TAGS,
    )


async def with_texts(
    cluster: UpstreamCluster, topic: str, found: StablePositions, groups: Collection[str]
) -> StablePositions:
    """The same positions, with the texts of these groups. Raises UnreachableError."""
    if not groups:
        return found
    async with BrokerConnections(cluster, ASK_S) as brokers:
        for group in groups:
            try:
                told = await brokers.ask_coordinator(group, _question(group, topic, found), GROUP)
            except CoordinatorRefusedError as refusal:
                raise UnreachableError(f"group {group!r} does not tell its offsets: {refusal}") from refusal
            if told.error_code not in (0, NOT_FOUND):
                problem = f"the coordinator on {cluster.name!r} answers with error {told.error_code}"
                raise UnreachableError(f"group {group!r} does not tell its offsets: {problem}")
            found.by_group[group] = {}
            for _, partitions, _ in told.topics:
                for number, offset, _, text, error, _ in partitions:
                    if error == UNSTABLE:
                        found.unstable.add(group)
                    elif not error and offset >= 0:
                        found.by_group[group][number] = Position(offset, (text or "").partition(END)[0])
    return found


def _question(group: str, topic: str, found: StablePositions) -> Exactly:
    return Exactly(OffsetFetchRequest_v7(group, [(topic, sorted(found.by_group[group]), {})], True, {}))
