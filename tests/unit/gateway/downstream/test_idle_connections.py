"""Connections of clients that send nothing end; those that ask, or wait for an answer, go on."""

import asyncio
import time
from pathlib import Path

from services.gateway import metrics
from services.gateway.wire.apis import ApiKey
from services.gateway.wire.messages import ApiVersionsRequest, ApiVersionsResponse, ProduceResponse
from tests.unit.gateway.downstream.conftest import staged
from tests.unit.gateway.downstream.test_order import gated, produce, written

IDLE_S = 3.0
"""Longer than this thread ever stands still: it serves the clients, too."""
LATE_S = 60.0


async def test_a_connection_without_requests_ends_and_those_in_use_go_on(tmp_path: Path) -> None:
    cut = metrics.cut_connections.labels("idle")
    before = cut._value.get()
    async with staged(tmp_path, connections_max_idle_s=IDLE_S) as stage:
        gate = asyncio.Event()
        waiting, asking, silent = [await stage.connect() for _ in range(3)]
        stage.c1.scripts[ApiKey.PRODUCE] = lambda header, message: written(message)
        await waiting.ask(produce("apples"), 9, ProduceResponse)
        stage.c1.scripts[ApiKey.PRODUCE] = gated(gate)
        waiting.send(produce("apples"), 9)
        began = time.monotonic()
        await silent.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
        closed = asyncio.create_task(silent.closed())
        while not closed.done():
            await asking.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
            await asyncio.wait([closed], timeout=0.05)
            assert time.monotonic() - began < LATE_S
        assert time.monotonic() - began >= IDLE_S
        assert cut._value.get() == before + 1
        gate.set()
        await waiting.answer(ProduceResponse)
