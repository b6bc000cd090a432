"""A broker of one topic that has a group's coordinator on its way: it refuses the first questions for offsets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from services.gateway.requests.knowledge import VersionRange
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from services.gateway.wire.messages.find_coordinator import FindCoordinatorResponse
from services.gateway.wire.messages.heartbeat import HeartbeatResponse
from services.gateway.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from services.gateway.wire.messages.leave_group import LeaveGroupResponse
from services.gateway.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from services.gateway.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from services.gateway.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.gateway.scripted_broker import BROKER_ID, ScriptedBroker
from tests.unit.gateway.wire.records import batch

TOPIC = "orders"
COORDINATOR_LOAD_IN_PROGRESS = 14
COMMITTED = {0: 0, 1: 1}
"""Where the group goes on, by partition; each has one record there."""
RECORD = b"\x10\x00\x00\x00\x01\x04r%d\x00"
"""Its value names its partition; everything else is zero or missing (KIP-98, record format 2)."""


class Coordinator:
    """Answers as a broker that has one member, and refuses the first questions for committed offsets."""

    def __init__(self, broker: ScriptedBroker, errors: list[int]) -> None:
        self._broker = broker
        self.errors = errors
        self.asked = 0

    def scripts(self) -> dict[int, Callable[[Any, Any], Any]]:
        return {
            ApiKey.FIND_COORDINATOR: lambda _header, _asked: FindCoordinatorResponse(
                node_id=BROKER_ID, host="127.0.0.1", port=self._broker.port
            ),
            ApiKey.OFFSET_FETCH: self._committed,
            ApiKey.LIST_OFFSETS: self._offsets,
            ApiKey.FETCH: self._fetch,
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: lambda _header, asked: self._sync(asked),
            ApiKey.HEARTBEAT: lambda _header, _asked: HeartbeatResponse(),
            ApiKey.LEAVE_GROUP: lambda _header, _asked: LeaveGroupResponse(),
        }

    def _committed(self, _header: Any, asked: OffsetFetchRequest) -> OffsetFetchResponse:
        self.asked += 1
        error = self.errors.pop(0) if self.errors else 0
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(one, -1 if error else COMMITTED[one], metadata="")
                    for one in topic.partition_indexes
                ],
            )
            for topic in asked.topics or []
        ]
        return OffsetFetchResponse(topics=[] if error else topics, error_code=error)

    @staticmethod
    def _offsets(_header: Any, asked: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [ListOffsetsPartitionResponse(one.partition_index, offset=2) for one in topic.partitions],
                )
                for topic in asked.topics
            ]
        )

    async def _fetch(self, _header: Any, asked: FetchRequest) -> FetchResponse:
        answer = FetchResponse(
            responses=[
                FetchableTopicResponse(topic.topic, topic.topic_id, [self._data(one) for one in topic.partitions])
                for topic in asked.topics
            ]
        )
        if not any(one.records for topic in answer.responses for one in topic.partitions):
            await asyncio.sleep(asked.max_wait_ms / 1000)  # as a broker that has nothing
        return answer

    @staticmethod
    def _data(asked: FetchPartition) -> PartitionData:
        at = COMMITTED[asked.partition]
        records = batch(RECORD % asked.partition, base_offset=at) if asked.fetch_offset == at else b""
        return PartitionData(
            asked.partition, high_watermark=at + 1, last_stable_offset=at + 1, log_start_offset=0, records=records
        )

    @staticmethod
    def _join(_header: Any, asked: JoinGroupRequest) -> JoinGroupResponse:
        chosen = asked.protocols[0]
        return JoinGroupResponse(
            generation_id=1,
            protocol_name=chosen.name,
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember("m", None, bytes(chosen.metadata))],
        )

    @staticmethod
    def _sync(asked: SyncGroupRequest) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=bytes(asked.assignments[0].assignment))


@asynccontextmanager
async def scripted_broker() -> AsyncIterator[ScriptedBroker]:
    """It speaks what a coordinator needs, and has no script yet."""
    broker = ScriptedBroker({TOPIC: len(COMMITTED)})
    # before groups are many to a question, and members know their topics by ids
    narrow: dict[int, VersionRange] = {
        ApiKey.OFFSET_FETCH: VersionRange(0, 7),
        ApiKey.FIND_COORDINATOR: VersionRange(0, 2),
    }
    spoken = {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, *Coordinator(broker, []).scripts()}
    broker.versions = {key: narrow.get(key, range_) for key, range_ in broker.versions.items() if key in spoken}
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
