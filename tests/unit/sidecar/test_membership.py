"""A member whose coordinator is on its way asks again where to begin: its client alone would wait without end."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

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
from services.sidecar.consuming.client_properties import instance_properties
from services.sidecar.consuming.membership import Membership
from services.sidecar.consuming.records import InstanceId, InstanceOptions, Interest, Partition
from services.sidecar.faults import Fault
from services.sidecar.formats import Format
from tests.unit.gateway.scripted_broker import BROKER_ID, ScriptedBroker
from tests.unit.gateway.wire.records import batch

TOPIC = "orders"
NOT_COORDINATOR = 16
COORDINATOR_LOAD_IN_PROGRESS = 14
GROUP_AUTHORIZATION_FAILED = 30
WITHIN_SECONDS = 30.0
COMMITTED = {0: 0, 1: 1}
"""Where the group goes on, by partition; each has one record there."""
RECORD = b"\x10\x00\x00\x00\x01\x04r%d\x00"
"""Its value names its partition; everything else is zero or missing (KIP-98, record format 2)."""
BY_HAND = Interest(partitions=tuple(Partition(TOPIC, one) for one in COMMITTED))
SHARED = Interest(topics=(TOPIC,))


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


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker({TOPIC: len(COMMITTED)})
    # before groups are many to a question, and members know their topics by ids
    narrow: dict[int, VersionRange] = {
        ApiKey.OFFSET_FETCH: VersionRange(0, 7),
        ApiKey.FIND_COORDINATOR: VersionRange(0, 2),
    }
    spoken = {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, *Coordinator(broker, []).scripts()}
    broker.versions = {key: narrow.get(key, range_) for key, range_ in broker.versions.items() if key in spoken}
    await broker.start()
    yield broker
    await broker.stop()


def read(bootstrap: str, interest: Interest, strategy: str, faults: list[Fault]) -> list[bytes | None]:
    """What a member reads until it has a record of each partition; collects what it says is wrong."""
    options = InstanceOptions(Format.STRING, Format.STRING, read_timeout=1.0)
    base = {"bootstrap.servers": bootstrap, "partition.assignment.strategy": strategy}
    properties = instance_properties(base, InstanceId("group", "c1"), options)
    membership = Membership(properties, options, lambda _gone: None, lambda _commits: None)
    until = time.monotonic() + WITHIN_SECONDS
    values: list[bytes | None] = []
    try:
        membership.follow(interest)
        while len(values) < len(COMMITTED):
            assert time.monotonic() < until, f"only {values} of {len(COMMITTED)} partitions"
            if (message := membership.poll(0.05)) is not None:
                values.append(message.value())
            if membership.has_failed and (fault := membership.fault()) is not None:
                faults.append(fault)
    finally:
        membership.close()
    return sorted(values, key=str)


@pytest.mark.parametrize("error", [NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize(
    ("interest", "strategy"), [(BY_HAND, "range"), (SHARED, "range"), (SHARED, "cooperative-sticky")]
)
async def test_a_coordinator_on_its_way_is_asked_again(
    broker: ScriptedBroker, interest: Interest, strategy: str, error: int
) -> None:
    coordinator = Coordinator(broker, [error, error])
    broker.scripts = coordinator.scripts()
    faults: list[Fault] = []
    assert await asyncio.to_thread(read, broker.address, interest, strategy, faults) == [b"r0", b"r1"]
    assert (coordinator.errors, faults) == ([], [])


async def test_a_group_that_is_refused_says_so_and_goes_on_when_it_is_not(broker: ScriptedBroker) -> None:
    coordinator = Coordinator(broker, [GROUP_AUTHORIZATION_FAILED])
    broker.scripts = coordinator.scripts()
    faults: list[Fault] = []
    assert await asyncio.to_thread(read, broker.address, BY_HAND, "range", faults) == [b"r0", b"r1"]
    (fault,) = faults
    assert "authorization" in fault.description.lower()
