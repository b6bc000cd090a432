"""The memory of a console as a process of its own, with ten viewers who keep pages open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import psutil

from tests.fixtures.consoles import Consoled
from tests.fixtures.members import certificate_of
from tests.fixtures.ports import free_block
from tests.integration.control.world import CALL, WITHIN, router, until

VIEWERS = 10
ROUNDS = 3
PAGES = ("/", "/topics", "/groups", "/rules", "/history", "/audit", "/clients", "/replays")
MOST_MB = 60.0
"""Of the process's own memory."""


async def test_ten_viewers_take_less_than_sixty_megabytes(
    console: Consoled, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    for number in range(30):
        await console.world.set(unique_name(f"apples-{number}"), "c1")
    port = free_block(2)
    async with (
        console_process(console, port, tmp_path / "console.log") as process,
        router(console.world, "gateway-1", "gateway-2"),
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(VIEWERS):
            await stack.enter_async_context(viewer(f"http://127.0.0.1:{port}"))
        memory = psutil.Process(process.pid).memory_full_info()
    print(f"resident {memory.rss / 1e6:.1f} MB, of which the process's own {memory.uss / 1e6:.1f} MB")
    assert memory.uss / 1e6 < MOST_MB, "pages of libraries, which processes share, are not the console's own"


@contextlib.asynccontextmanager
async def console_process(console: Consoled, port: int, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A console that has begun to serve."""
    settings = {
        "KAFKA_MESH_CONSOLE_LISTEN": f"127.0.0.1:{port}",
        "KAFKA_MESH_CONSOLE_METRICS_LISTEN": f"127.0.0.1:{port + 1}",
        "KAFKA_MESH_CONSOLE_CONTROL_ADDRESS": f"127.0.0.1:{console.world.control.port}",
        "KAFKA_MESH_CONSOLE_RPC_TLS_FOLDER": str(certificate_of(console.authority, "viewer", "console").folder),
    }
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.console", env=os.environ | settings, stderr=output
        )
    try:
        await until(lambda: is_ready(port + 1), "the console is ready")
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), WITHIN)


async def is_ready(management: int) -> bool:
    async with httpx.AsyncClient(timeout=CALL) as client:
        with contextlib.suppress(httpx.TransportError):
            return (await client.get(f"http://127.0.0.1:{management}/ready")).status_code == 200
    return False


@contextlib.asynccontextmanager
async def viewer(url: str) -> AsyncIterator[None]:
    """Looks at pages, and keeps one open."""
    async with httpx.AsyncClient(base_url=url, timeout=CALL) as client:
        for _ in range(ROUNDS):
            for answer in await asyncio.gather(*map(client.get, PAGES)):
                assert answer.status_code == 200, answer.text
        async with client.stream("GET", "/live/status") as stream:
            assert stream.status_code == 200
            yield
