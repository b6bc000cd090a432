"""Deletes old rows every hour, some at a time.

One transaction over millions of rows would reach its time-out, and begin anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

import structlog
from prometheus_client import Counter
from sqlalchemy import Table, delete, select

from services.control.store.database import Database, StoreUnavailableError

AT_ONCE: Final = 5_000
"""Rows that one transaction deletes."""
PAUSE_S: Final = 3600.0
"""Seconds between two clean-ups of answers that no client asks for any more, of old audit events and old reports."""

log = structlog.get_logger(__name__)

deleted_total = Counter(
    "kafka_mesh_control_deleted_rows_total", "Rows that were deleted because of their age.", ["table"]
)


async def clean_up(deletions: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Makes the deletions again and again, for ever."""
    while True:
        await asyncio.sleep(PAUSE_S)
        try:
            for delete_old in deletions:
                await delete_old()
        except StoreUnavailableError as error:
            log.warning("old answers, audit events and reports are kept until the next clean-up", reason=str(error))


async def delete_older(database: Database, table: Table, before: datetime, at_once: int = AT_ONCE) -> None:
    """Deletes the rows of a table with a column `time` and a primary key of one column."""
    (key,) = table.primary_key
    while True:
        some = select(key).where(table.c.time < before).order_by(table.c.time).limit(at_once)
        async with database.transaction() as connection:
            deleted = (await connection.execute(delete(table).where(key.in_(some)))).rowcount
        deleted_total.labels(table.name).inc(deleted)
        if deleted < at_once:
            return
