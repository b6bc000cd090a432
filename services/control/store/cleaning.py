"""Deletes old rows some at a time: one transaction over millions of rows would reach its time-out, and begin anew."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from prometheus_client import Counter
from sqlalchemy import Table, delete, select

from services.control.store.database import Database

AT_ONCE: Final = 5_000
"""Rows that one transaction deletes."""

deleted_total = Counter("control_deleted_rows_total", "Rows that were deleted because of their age.", ["table"])


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
