"""Offsets of a group whose coordinator moves: librdkafka's admin client would end its process over the answer.

The broker is scripted: real ones answer NOT_COORDINATOR for milliseconds.
"""

from __future__ import annotations

import asyncio
import sys

from services.gateway.requests.knowledge import VersionRange
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader
from services.gateway.wire.messages import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from services.gateway.wire.messages.describe_groups import DescribedGroup
from services.gateway.wire.messages.offset_fetch import OffsetFetchResponsePartition, OffsetFetchResponseTopic
from tests.fixtures.waiting import WITHIN_S
from tests.unit.gateway.scripted_broker import BROKER_ID, METADATA_ALONE, ScriptedBroker, broker

ASKING = """
import sys
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient
from mesh.group_offsets import COORDINATOR_MOVES, committed_offsets

admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
while True:
    [future] = committed_offsets(admin, [ConsumerGroupTopicPartitions("readers")], 20.0).values()
    try:
        [partition] = future.result(30.0).topic_partitions
        break
    except KafkaException as error:
        assert error.args[0].code() in COORDINATOR_MOVES, error
print(partition.offset)
"""
MOVING = 2
"""Requests that the broker answers before it is the coordinator."""


async def test_a_process_that_asks_while_the_coordinator_moves_gets_the_offsets_in_the_end() -> None:
    async with broker({"apples": 1}) as moving:
        _script(moving)
        command = (sys.executable, "-c", ASKING, moving.address)
        asking = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(WITHIN_S):
            output, _ = await asking.communicate()
        assert (asking.returncode, output) == (0, b"7\n")


def _script(moving: ScriptedBroker) -> None:
    left = MOVING

    def error() -> int:
        nonlocal left
        left -= 1
        return ErrorCode.NOT_COORDINATOR if left >= 0 else ErrorCode.NONE

    def find(_header: RequestHeader, _message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=BROKER_ID, host="127.0.0.1", port=moving.port)

    def describe(_header: RequestHeader, message: DescribeGroupsRequest) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            groups=[DescribedGroup(error(), None, group, "Empty") for group in message.groups]
        )

    def offsets(_header: RequestHeader, _message: OffsetFetchRequest) -> OffsetFetchResponse:
        if code := error():
            return OffsetFetchResponse(error_code=code)
        partition = OffsetFetchResponsePartition(0, committed_offset=7)
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("apples", [partition])])

    moving.versions = METADATA_ALONE | {
        ApiKey.FIND_COORDINATOR: VersionRange(0, 2),
        ApiKey.DESCRIBE_GROUPS: VersionRange(0, 4),
        ApiKey.OFFSET_FETCH: VersionRange(0, 7),
    }
    moving.scripts |= {
        ApiKey.FIND_COORDINATOR: find,
        ApiKey.DESCRIBE_GROUPS: describe,
        ApiKey.OFFSET_FETCH: offsets,
    }
