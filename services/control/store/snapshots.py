"""Snapshots: views of the log at some positions, so that neither a start nor a look back reads it from the beginning.

Theory of operation
1. The leader keeps a snapshot whenever the log has grown by `every` events, and when the leader stops in order. Nothing
   waits for a snapshot or depends on it: every view follows from the log again.
2. A snapshot counts when its format is the present one, its bytes are unchanged, and the log holds the event at its
   position. Control skips any other snapshot, with a line in its log, and takes the previous snapshot. If none counts,
   control reads the log from the beginning.
3. With a certificate, control signs its snapshots, and takes those alone that a control has signed.
4. The last few snapshots stay, and enough of the older ones that a view of the past folds few events (`superfluous`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import structlog
from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as insert_or

from mesh.event_log import CONTROL, Chain, UnsignedError, upcast
from mesh.member_keys import MemberKeys
from mesh.rpc import events
from services.control.domain.past.snapshots import FORMAT, SnapshotError, view_from_bytes, view_to_bytes
from services.control.domain.view import MeshView
from services.control.store import schema
from services.control.store.database import Database, StoreUnavailableError

WORD = "snapshot of control"
"""Signatures cover this word, too."""
LATEST_KEPT = 3
"""More than one: a snapshot may turn out to be unreadable."""
OLDER_KEPT = 64
"""Most parts of the log, each with one snapshot: a view of the past in a million events folds some 16,000 of them."""
LOOK_EVERY = 1.0
"""Seconds between two checks of the log's growth."""

log = structlog.get_logger(__name__)
kept_total = Counter("kafka_mesh_control_snapshots_total", "Snapshots of the log that were kept.")
position_gauge = Gauge(
    "kafka_mesh_control_snapshot_position", "Position of the newest snapshot that this process knows."
)


class Snapshots:
    """The table of snapshots."""

    def __init__(self, database: Database, keys: MemberKeys | None = None) -> None:
        self._database = database
        self._keys = keys
        self.last = 0
        """Position of the newest snapshot, as far as this process knows."""

    async def newest(self, at_most: int | None = None) -> tuple[MeshView, Chain] | None:
        """The newest snapshot that counts, not beyond the position `at_most`; None when there is none."""
        below = at_most
        while True:
            row = await self._row(below)
            if row is None:
                return None
            try:
                view = await asyncio.to_thread(self._checked, row)
            except SnapshotError as error:
                log.warning(
                    "control skips a snapshot that it cannot read, and tries the one before",
                    position=row.position,
                    reason=str(error),
                )
                below = row.position - 1
                continue
            self.last = max(self.last, row.position)
            return view, Chain(row.position, row.event_hash)

    async def keep(self, view: MeshView, chain: Chain) -> None:
        """Keeps a snapshot of this view, and deletes the snapshots that are no longer needed."""
        body = await asyncio.to_thread(view_to_bytes, view)
        row = {
            "position": chain.position,
            "format": FORMAT,
            "event_hash": chain.hash,
            "body": body,
            "digest": self._digest(body),
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

    def _digest(self, body: bytes) -> bytes:
        """The signature of the body; its SHA-256 without a certificate."""
        if self._keys is None:
            return sha256(body).digest()
        return self._keys.signature(WORD, body, shows=True).SerializeToString()

    def _checked(self, row: Any) -> MeshView:
        """SnapshotError if the snapshot does not count."""
        if self._keys is not None:
            try:
                self._keys.signatures(CONTROL).check(WORD, row.body, events.Signature.FromString(row.digest))
            except (UnsignedError, DecodeError) as error:
                raise SnapshotError(f"control has not signed it: {error}") from None
        elif sha256(row.body).digest() != row.digest:
            raise SnapshotError("its bytes are not what was written")
        return _view_of(row)

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
    """Keeps snapshots while it runs; `present` returns the present view and chain."""

    def __init__(self, snapshots: Snapshots, every: int, present: Callable[[], tuple[MeshView, Chain]]) -> None:
        self._snapshots = snapshots
        self._every = every
        self._present = present
        self._keeping = asyncio.Lock()
        position_gauge.set_function(lambda: snapshots.last)

    async def run(self) -> None:
        """Keeps snapshots until cancelled."""
        while True:
            if self._present()[1].position >= self._snapshots.last + self._every:
                await self.keep()
            await asyncio.sleep(LOOK_EVERY)

    async def keep(self) -> None:
        """Keeps a snapshot of the present view, unless that snapshot exists."""
        async with self._keeping:
            view, chain = self._present()
            if chain.position <= self._snapshots.last:
                return
            try:
                await self._snapshots.keep(view, chain)
            except StoreUnavailableError as error:
                log.warning("no snapshot was kept; the next one comes", reason=str(error))


def superfluous(positions: Sequence[int]) -> list[int]:
    """Positions of snapshots that may go: all but the last few, and the first snapshot in each part of the log.

    Parts are equal, and twice as long when there are too many. So each part begins where a shorter part began, and the
    first snapshot of that shorter part still exists.
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


def _view_of(row: Any) -> MeshView:
    """The view of a snapshot whose bytes are those that were written."""
    if row.event is None:
        raise SnapshotError("the log has no event at its position")
    event = upcast(row.event)
    if event.previous_hash and Chain().after(event, row.event).hash != row.event_hash:
        raise SnapshotError("the log has another event at its position")
    view = view_from_bytes(row.body)
    if view.position != row.position:
        raise SnapshotError(f"it holds the view at {view.position}")
    return view
