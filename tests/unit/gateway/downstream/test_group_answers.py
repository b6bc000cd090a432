"""Answers to JoinGroup and SyncGroup that are lost, late or doubled: each request of a member gets one answer, its own.

A member whose answer is lost hears COORDINATOR_NOT_AVAILABLE, upon which clients join again. Whatever happened to a
JoinGroup or SyncGroup, the heartbeats of the member go their way.
"""

import asyncio

import pytest

from services.gateway.wire.apis import ApiKey
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.frames import RequestHeader, encode_response
from services.gateway.wire.messages import (
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.fixtures.waiting import until
from tests.unit.gateway.downstream.conftest import Stage
from tests.unit.gateway.downstream.raw_client import RawClient
from tests.unit.gateway.scripted_broker import BROKER_ID

JOIN, SYNC, BEAT = 5, 3, 3
"""Versions of the requests."""
JOINED = JoinGroupResponse(generation_id=7, protocol_name="range", leader="m", member_id="m")
SYNCED = SyncGroupResponse(assignment=b"all of it")


@pytest.fixture
async def group(stage: Stage) -> Stage:
    """A group that lives on c1, and a coordinator that answers everything."""
    mesh = stage.gateway.mesh
    mesh.memory.group_homes.put("g", "c1", asyncio.get_running_loop().time())
    stage.c1.scripts |= {
        ApiKey.FIND_COORDINATOR: lambda header, message: FindCoordinatorResponse(
            node_id=BROKER_ID, host="127.0.0.1", port=stage.c1.port
        ),
        ApiKey.JOIN_GROUP: lambda header, message: JOINED,
        ApiKey.SYNC_GROUP: lambda header, message: SYNCED,
        ApiKey.HEARTBEAT: lambda header, message: HeartbeatResponse(),
    }
    return stage


async def joined(client: RawClient) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=60_000, member_id="m", protocol_type="consumer"
    )
    return await client.ask(request, JOIN, JoinGroupResponse)


async def synced(client: RawClient) -> SyncGroupResponse:
    return await client.ask(SyncGroupRequest(group_id="g", generation_id=7, member_id="m"), SYNC, SyncGroupResponse)


async def beat(client: RawClient) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    return (await client.ask(request, BEAT, HeartbeatResponse)).error_code


async def is_member(client: RawClient) -> bool:
    """Whether the member joins, gets its partitions, and is heard of."""
    return (await joined(client), await synced(client), await beat(client)) == (JOINED, SYNCED, ErrorCode.NONE)


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
async def test_a_member_whose_answer_is_lost_joins_again_on_the_same_connection(group: Stage, key: ApiKey) -> None:
    answers = group.c1.scripts[key]

    def lost(header: RequestHeader, message: object) -> None:
        group.c1.scripts[key] = answers
        for writer in list(group.c1.connections):
            writer.transport.abort()

    group.c1.scripts[key] = lost
    client = await group.connect()
    told = [(await joined(client)).error_code]
    if key is ApiKey.SYNC_GROUP:
        told.append((await synced(client)).error_code)
    assert told[-1] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await until(lambda: group.gateway.mesh.clusters.known["c1"].available, "the cluster is seen again")
    assert await is_member(client)


async def test_a_doubled_answer_to_a_join_is_no_answer_to_the_request_behind_it(group: Stage) -> None:
    first: list[RequestHeader] = []

    def join(header: RequestHeader, message: object) -> JoinGroupResponse:
        first.append(header)
        return JOINED

    def once_more(header: RequestHeader, message: object) -> bytes:
        group.c1.scripts[ApiKey.SYNC_GROUP] = lambda header, message: SYNCED
        return encode_response(JOINED, JOIN, first[0].correlation_id)

    group.c1.scripts |= {ApiKey.JOIN_GROUP: join, ApiKey.SYNC_GROUP: once_more}
    client = await group.connect()
    assert await joined(client) == JOINED
    assert (await synced(client)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await beat(client) == ErrorCode.NONE
    assert await is_member(client)


async def test_an_answer_that_comes_twice_at_once_is_heard_once(group: Stage) -> None:
    group.c1.scripts[ApiKey.JOIN_GROUP] = lambda header, message: (
        2 * encode_response(JOINED, JOIN, header.correlation_id)
    )
    client = await group.connect()
    assert await joined(client) == JOINED
    group.c1.scripts[ApiKey.JOIN_GROUP] = lambda header, message: JOINED
    assert await beat(client) == ErrorCode.NONE
    assert await is_member(client)


async def test_an_answer_that_is_late_for_a_client_that_has_left_reaches_nobody(group: Stage) -> None:
    gate = asyncio.Event()

    async def late(header: RequestHeader, message: object) -> JoinGroupResponse:
        await gate.wait()
        return JoinGroupResponse(generation_id=6, protocol_name="range", leader="m", member_id="m")

    group.c1.scripts[ApiKey.JOIN_GROUP] = late
    impatient = await group.connect()
    joining = asyncio.ensure_future(joined(impatient))
    await until(lambda: group.c1.requests(ApiKey.JOIN_GROUP), "the coordinator has the request")
    joining.cancel()
    impatient.abort()
    group.c1.scripts[ApiKey.JOIN_GROUP] = lambda header, message: JOINED
    client = await group.connect()
    assert await joined(client) == JOINED
    gate.set()
    assert await synced(client) == SYNCED
    assert await beat(client) == ErrorCode.NONE


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
async def test_heartbeats_do_not_wait_behind_an_answer_that_a_coordinator_delays(group: Stage, key: ApiKey) -> None:
    """A client that keeps a connection for its coordinator sends them there, another one beside it."""
    gate, answers = asyncio.Event(), group.c1.scripts[key]

    async def late(header: RequestHeader, message: object) -> object:
        await gate.wait()
        return answers(header, message)

    group.c1.scripts[key] = late  # type: ignore[assignment]
    waiting, beside = await group.connect(), await group.connect()
    member = asyncio.ensure_future(is_member(waiting))
    await until(lambda: group.c1.requests(key), "the coordinator has the request")
    assert await beat(beside) == ErrorCode.NONE
    gate.set()
    assert await member
