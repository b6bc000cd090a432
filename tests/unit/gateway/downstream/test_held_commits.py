"""A topic moves: commits of offsets in it wait for the end, and a hold is complete when no commit is on its way."""

from __future__ import annotations

import asyncio

import pytest

from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from services.gateway.wire.messages.find_coordinator import FindCoordinatorResponse
from services.gateway.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.fixtures.waiting import WITHIN_S, until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.scripted_broker import BROKER_ID, Script, ScriptedBroker

VERSION = 7


def commit(topic: str, offset: int) -> OffsetCommitRequest:
    """A commit without a member goes to the owner of the topic as it is."""
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])


def answers(gate: asyncio.Event) -> Script:
    async def script(header: object, message: OffsetCommitRequest) -> OffsetCommitResponse:
        await gate.wait()
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=each.name, partitions=[OffsetCommitResponsePartition(0, 0)])
                for each in message.topics
            ]
        )

    return script


def coordinates(cluster: ScriptedBroker) -> Script:
    return lambda header, message: FindCoordinatorResponse(node_id=BROKER_ID, host="127.0.0.1", port=cluster.port)


def offsets(cluster: ScriptedBroker, topic: str) -> list[int]:
    commits = cluster.requests(ApiKey.OFFSET_COMMIT)
    return [each.partitions[0].committed_offset for one in commits for each in one.topics if each.name == topic]


def code(answer: OffsetCommitResponse) -> int:
    return answer.topics[0].partitions[0].error_code


@pytest.fixture
async def gate(stage: Stage) -> asyncio.Event:
    """Coordinators that answer commits when it opens."""
    gate = asyncio.Event()
    for cluster in (stage.c1, stage.c2):
        cluster.scripts |= {ApiKey.OFFSET_COMMIT: answers(gate), ApiKey.FIND_COORDINATOR: coordinates(cluster)}
    return gate


async def test_a_commit_on_its_way_is_waited_for_and_the_next_one_goes_to_the_new_cluster(
    stage: Stage, gate: asyncio.Event
) -> None:
    mesh, after = stage.gateway.mesh, stage.table(2, apples="c2", bananas="c2")
    client, other = await stage.connect(), await stage.connect()
    client.send(commit("apples", 7), VERSION)
    await until(lambda: offsets(stage.c1, "apples"))
    hold = mesh.begin_hold(after)
    client.send(commit("apples", 8), VERSION)
    assert not hold.complete.is_set()
    gate.set()
    assert code(await other.ask(commit("bananas", 9), VERSION, OffsetCommitResponse)) == 0
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    assert code(await client.answer(OffsetCommitResponse)) == 0
    await until(lambda: mesh.hold is hold and client_waits(stage))
    assert offsets(stage.c2, "apples") == []
    mesh.end_hold(after)
    assert code(await client.answer(OffsetCommitResponse)) == 0
    assert (offsets(stage.c1, "apples"), offsets(stage.c2, "apples")) == ([7], [8])


def client_waits(stage: Stage) -> bool:
    return any(connection.unanswered for connection in stage.gateway.connections)


async def test_a_commit_of_a_client_that_leaves_is_waited_for_too(stage: Stage, gate: asyncio.Event) -> None:
    client = await stage.connect()
    client.send(commit("apples", 7), VERSION)
    await until(lambda: offsets(stage.c1, "apples"))
    client.close()
    await until(lambda: not stage.gateway.connections)
    hold = stage.gateway.mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    assert not hold.complete.is_set()
    gate.set()
    async with asyncio.timeout(WITHIN_S):
        await hold.complete.wait()
    assert not stage.gateway.mesh.committing


async def test_a_commit_is_refused_while_nobody_knows_where_its_topic_is(stage: Stage, gate: asyncio.Event) -> None:
    gate.set()
    client = await stage.connect()
    hold = stage.gateway.mesh.begin_hold(stage.table(2, apples="c2", bananas="c2"))
    client.send(commit("apples", 7), VERSION)
    await until(lambda: client_waits(stage))
    hold.refuse()
    assert code(await client.answer(OffsetCommitResponse)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).error_code == 0
    assert offsets(stage.c1, "apples") == offsets(stage.c2, "apples") == []
