"""A service with calls under way starts a program: gRPC has no say in that, for it would wait up to 60 s.

Services import `mesh` before gRPC.
"""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAMS = 20
WITHIN_S = 150
FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
SCRIPT = f"""
import mesh, asyncio, threading
import grpc, grpc.aio, uvloop

class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        async def answer(request, context):
            return request
        return grpc.unary_unary_rpc_method_handler(answer)

async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    ended = threading.Event()
    def call():
        with grpc.insecure_channel(f"127.0.0.1:{{port}}") as channel:
            echo = channel.unary_unary("/echo/Echo")
            while not ended.is_set():
                echo(b"")
    callers = [asyncio.create_task(asyncio.to_thread(call)) for _ in range(4)]
    for _ in range({PROGRAMS}):
        program = await asyncio.create_subprocess_exec("true")
        await program.wait()
    ended.set()
    await asyncio.gather(*callers)
    await server.stop(None)

uvloop.run(main())
"""


def test_grpc_does_not_take_part_when_a_program_starts() -> None:
    environment = {name: value for name, value in os.environ.items() if name != FORK_SUPPORT}
    command = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, env=environment, check=True)
    assert "fork_posix" not in run.stderr
