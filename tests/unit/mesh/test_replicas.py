"""Calls go to the replica that leads: real servers, of which one after the other says SERVING."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mesh.rpc.replicas import Replicas
from mesh.rpc.server import RpcServer
from tests.fixtures.waiting import until


@pytest.fixture
async def servers() -> AsyncIterator[list[RpcServer]]:
    made = [RpcServer("127.0.0.1:0", {}) for _ in range(2)]
    for server in made:
        await server.start()
    yield made
    for server in made:
        await server.stop(0)


def calls_go_to(replicas: Replicas, address: str) -> bool:
    return replicas.address == address


async def test_calls_follow_the_replica_that_leads(servers: list[RpcServer]) -> None:
    addresses = tuple(f"127.0.0.1:{server.port}" for server in servers)
    async with Replicas(addresses) as replicas:
        stub: Any = health_pb2_grpc.HealthStub(replicas)
        for leader in (1, 0, 1):
            for number, server in enumerate(servers):
                await server.set_serving(number == leader)
            await until(partial(calls_go_to, replicas, addresses[leader]))
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_next_leader_is_found_when_the_one_before_is_gone(servers: list[RpcServer]) -> None:
    first, second = servers
    await first.set_serving(True)
    async with Replicas(tuple(f"127.0.0.1:{server.port}" for server in servers)) as replicas:
        moved = replicas.moved()
        await first.stop(0)
        await second.set_serving(True)
        await moved
        assert replicas.address == f"127.0.0.1:{second.port}"


async def test_while_no_replica_leads_a_call_ends_with_what_the_last_one_says() -> None:
    async with Replicas(("127.0.0.1:1", "127.0.0.1:2")) as replicas:
        stub: Any = health_pb2_grpc.HealthStub(replicas)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_at_least_one_address_is_needed() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Replicas(())
