"""The least that a create can cost: a gRPC call without content that inserts one row, with the libraries of control.

`python -m tests.bench.insert_server ADDRESS URL` serves `/floor/Insert` until the process is ended.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc.aio
import psycopg
import uvloop

METHOD = "/floor/Insert"


async def serve(address: str, url: str) -> None:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("create table floor (number bigint generated always as identity, name text)")

    async def insert(_request: bytes, _context: Any) -> bytes:
        await connection.execute("insert into floor (name) values (%s)", ("orders",))
        return b""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(insert) if details.method == METHOD else None

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(*sys.argv[1:]))
