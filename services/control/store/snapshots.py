"""Snapshots: views of the log at some positions, so that neither a start nor a look back reads it from the beginning.

Theory of operation
1. The leader keeps one whenever the log has grown by `every` events, and one when it stops in order. Nobody waits for
   it, and nothing rests on it: the log gives every view again.
2. A snapshot counts when its format is today's, its bytes are what was written, and the log holds the event that it
   was made at. Any other one is passed over, with a line in control's log; the one before is taken, or the beginning.
3. The last few stay, and of the older ones enough that a look back has never far to go (`superfluous`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import structlog
from prometheus_client import Counter, Gauge
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as insert_or

from mesh.event_log import Chain, upcast
from services.control.domain.snapshot_form import FORMAT, SnapshotError, view_from_bytes, view_to_bytes
from services.control.domain.view import MeshView
from services.control.store import schema
from services.control.store.database import Database, StoreUnavailableError

LATEST_KEPT = 3
"""More than one: a snapshot may turn out to be unreadable."""
OLDER_KEPT = 64
"""The most parts of the log of which each keeps one: a look back into a million events folds some 16,000 of them."""
LOOK_EVERY = 1.0
"""Seconds between two looks at how far the log has grown."""

log = structlog.get_logger(__name__)
kept_total = Counter("control_snapshots_total", "Snapshots of the log that were kept.")
position_gauge = Gauge("control_snapshot_position", "Position of the newest snapshot that this process knows.")


class Snapshots:
    """The table of snapshots."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.last = 0
        """Position of the newest one, as far as this process knows."""

    async def newest(self, at_most: int | None = None) -> tuple[MeshView, Chain] | None:
        """The newest one that counts, not beyond a position; None when there is none."""
        below = at_most
        while True:
            row = await self._row(below)
            if row is None:
                return None
            try:
                view = await asyncio.to_thread(_checked, row)
            except SnapshotError as error:
                log.warning("a snapshot is passed over", position=row.position, reason=str(error))
                below = row.position - 1
                continue
            self.last = max(self.last, row.position)
            return view, Chain(row.position, row.event_hash)

    async def keep(self, view: MeshView, chain: Chain) -> None:
        """Keeps one of this view, and forgets those that are no longer needed."""
        body = await asyncio.to_thread(view_to_bytes, view)
        row = {
            "position": chain.position,
            "format": FORMAT,
            "event_hash": chain.hash,
            "body": body,
            "digest": sha256(body).digest(),
            "time": datetime.now(UTC),
        }
        table = schema.snapshots
        async with self._database.transaction() as connection:
            await connection.execute(
                insert_or(table).values(**row).on_conflict_do_update(index_elements=table.primary_key.columns, set_=row)
            )
            await connection.execute(delete(table).where(table.c.format != FORMAT, table.c.position < chain.position))
            kept = (await connection.scalars(select(table.c.position).where(table.c.format == FORMAT))).all()
            gone = superfluous(kept)
            if gone:
                await connection.execute(delete(table).where(table.c.position.in_(gone)))
        kept_total.inc()
        self.last = chain.position

    async def _row(self, at_most: int | None) -> Any:
        table, log_table = schema.snapshots, schema.events
        query = (
            select(table, log_table.c.body.label("event"))
            .outerjoin(log_table, log_table.c.position == table.c.position)
            .where(table.c.format == FORMAT)
            .order_by(table.c.position.desc())
            .limit(1)
        )
        if at_most is not None:
            query = query.where(table.c.position <= at_most)
        async with self._database.transaction() as connection:
            return (await connection.execute(query)).one_or_none()


class SnapshotKeeper:
    """Keeps snapshots while it runs; `present` is what control knows now."""

    def __init__(self, snapshots: Snapshots, every: int, present: Callable[[], tuple[MeshView, Chain]]) -> None:
        self._snapshots = snapshots
        self._every = every
        self._present = present
        self._keeping = asyncio.Lock()
        position_gauge.set_function(lambda: snapshots.last)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._present()[1].position >= self._snapshots.last + self._every:
                await self.keep()
            await asyncio.sleep(LOOK_EVERY)

    async def keep(self) -> None:
        """Keeps one of the present view, unless that one is there."""
        async with self._keeping:
            view, chain = self._present()
            if chain.position <= self._snapshots.last:
                return
            try:
                await self._snapshots.keep(view, chain)
            except StoreUnavailableError as error:
                log.warning("no snapshot was kept; the next one comes", reason=str(error))


def superfluous(positions: Sequence[int]) -> list[int]:
    """Positions of snapshots that may go: all but the last few, and the first one in each part of the log. Parts are
    equal, and twice as long when there are too many: so each begins where one began before, and its first one is there.
    """
    ordered = sorted(positions)
    length = 1
    while ordered and ordered[-1] // length >= OLDER_KEPT:
        length *= 2
    parts, gone = set[int](), []
    for position in ordered[:-LATEST_KEPT]:
        if position // length in parts:
            gone.append(position)
        parts.add(position // length)
    return gone


def _checked(row: Any) -> MeshView:
    if sha256(row.body).digest() != row.digest:
        raise SnapshotError("its bytes are not what was written")
    if row.event is None:
        raise SnapshotError("the log has no event at its position")
    event = upcast(row.event)
    if event.previous_hash and Chain().after(event, row.event).hash != row.event_hash:
        raise SnapshotError("the log has another event at its position")
    view = view_from_bytes(row.body)
    if view.position != row.position:
        raise SnapshotError(f"it holds the view at {view.position}")
    return view
