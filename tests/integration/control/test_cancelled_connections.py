"""A call that is cancelled while its connection to PostgreSQL begins leaves no connection behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from urllib.parse import urlsplit

import psutil
import pytest

from services.control.store.database import Database
from tests.integration.control.world import until


def connections(url: str) -> int:
    port = urlsplit(url).port
    return sum(bool(each.raddr) and each.raddr.port == port for each in psutil.Process().net_connections("tcp"))


async def a_transaction(pool: Database) -> None:
    async with pool.transaction():
        pass


@pytest.mark.parametrize("turns", [0, 1, 2, 4, 8, 12])
async def test_a_cancelled_transaction_leaves_no_connection(database: str, turns: int) -> None:
    """`turns` of the event loop pass before the cancellation."""
    before = connections(database)
    gc.disable()
    try:
        for _ in range(5):
            pool = Database(database)
            asking = asyncio.create_task(a_transaction(pool))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            await pool.close()
        await until(lambda: connections(database) <= before, "no connection is left")
    finally:
        gc.enable()
