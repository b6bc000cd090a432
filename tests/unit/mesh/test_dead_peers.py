"""A real gRPC server and channel whose link falls silent while messages flow both ways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from mesh.rpc.channels import open_channel
from mesh.rpc.server import RpcServer
from tests.fixtures.cables import Cable
from tests.fixtures.ports import free_block
from tests.fixtures.waiting import until

NOTICED_S = 20.0
"""15 s are promised; the rest is for a busy machine."""
MESSAGE = b"x" * 2000


async def ticks() -> AsyncIterator[bytes]:
    while True:
        yield MESSAGE
        await asyncio.sleep(0.001)


async def test_a_server_and_its_client_notice_within_15_s_that_the_peer_is_silent_in_the_midst_of_messages() -> None:
    ended: list[float] = []

    async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in requests:
                yield message
        finally:
            ended.append(time.monotonic())

    def add_echo(server: grpc.aio.Server) -> None:
        handlers: Any = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))

    port = free_block(1)
    server, cable = RpcServer(f"127.0.0.1:{port}", {"test.Echo": add_echo}), Cable(f"rpc://127.0.0.1:{port}")
    await server.start()
    await cable.mend()
    channel = open_channel(cable.address)
    try:
        echo_of: Any = channel.stream_stream("/test.Echo/Echo")
        call = echo_of(ticks())
        for _ in range(300):
            assert await call.read() == MESSAGE
        async with cable.stalled():
            stalled = time.monotonic()
            with pytest.raises(grpc.aio.AioRpcError):
                while True:
                    await call.read()
            assert time.monotonic() - stalled < NOTICED_S
            await until(lambda: bool(ended), "the server ends the call")
            assert ended[0] - stalled < NOTICED_S
    finally:
        await channel.close()
        await server.stop(0)
        await cable.cut()
