"""Connections that stay out of the pool between single statements: taking one and giving it back costs more than a
statement.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

MOST_KEPT = 2
"""Connections of the pool that nobody else can have: one for the log's writer, one for whoever comes meanwhile."""

REFUSED = (psycopg.IntegrityError, psycopg.ProgrammingError)
"""PostgreSQL has answered: the connection goes on after these errors, and after no other one."""


@dataclass(slots=True)
class _Kept:
    pooled: AsyncConnection
    driver: Any
    """The psycopg connection, in autocommit."""
    used: float


class KeptConnections:
    """Connections of `engine`, whose isolation level is AUTOCOMMIT."""

    def __init__(self, engine: AsyncEngine, idle_s: float) -> None:
        """`idle_s`: after so many seconds without use, a connection is checked before its use."""
        self._engine = engine
        self._idle_s = idle_s
        self._free: list[_Kept] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """A psycopg connection for one statement. A connection whose statement has failed is not used again, unless
        PostgreSQL refused the statement.
        """
        kept = await self._taken()
        try:
            yield kept.driver
        except REFUSED:
            await self._give_back(kept)
            raise
        except BaseException:
            await _drop(kept)  # it may be in the middle of an answer
            raise
        await self._give_back(kept)

    def doubt(self) -> None:
        """Has each free connection checked before its next use: PostgreSQL was away, or another connection broke."""
        for kept in self._free:
            kept.used = -math.inf

    async def close(self) -> None:
        """Gives the connections that are free back to the pool."""
        while self._free:
            await self._free.pop().pooled.close()

    async def _taken(self) -> _Kept:
        while self._free:
            kept = self._free.pop()
            if time.monotonic() - kept.used < self._idle_s or await _answers(kept):
                return kept
        pooled = await self._engine.connect()
        driver = (await pooled.get_raw_connection()).driver_connection
        return _Kept(pooled, driver, time.monotonic())

    async def _give_back(self, kept: _Kept) -> None:
        if len(self._free) < MOST_KEPT:
            kept.used = time.monotonic()
            self._free.append(kept)
        else:
            await kept.pooled.close()


async def _answers(kept: _Kept) -> bool:
    """Whether PostgreSQL still answers on the connection; one that does not is dropped."""
    try:
        await kept.driver.execute(b"")
    except psycopg.Error:
        await _drop(kept)
        return False
    except BaseException:
        await _drop(kept)
        raise
    return True


async def _drop(kept: _Kept) -> None:
    await kept.pooled.invalidate()
    await kept.pooled.close()
