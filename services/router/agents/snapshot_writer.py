"""When a snapshot is written: every so many events, once the router has caught up, and never in the way of its work.

Every router writes without asking another router. Before a router writes, it checks whether there is a snapshot that is
as new; if so, it writes none. If a write fails, the router tries again later with the newest state by then, and works
without the snapshot meanwhile.
"""

from __future__ import annotations

import asyncio
import time

import structlog

from mesh.member_keys import MemberKeys
from services.router import metrics
from services.router.agents.ledger import Ledger
from services.router.agents.snapshot_topic import SnapshotTopic, SnapshotTopicError
from services.router.agents.snapshots import Snapshot, SnapshotError, records_of
from services.router.change import Change

PAUSE_AFTER_FAILURE = 30.0
"""Seconds until the next attempt."""

log = structlog.get_logger(__name__)


class SnapshotWriter:
    """Writes the snapshots of one reading. `run` works until cancelled; `note` takes the reading's progress."""

    def __init__(
        self, topic: SnapshotTopic, every: int, ledger: Ledger, router: str, keys: MemberKeys | None = None
    ) -> None:
        self._keys = keys
        self._topic = topic
        self._every = every
        self._ledger = ledger
        self._router = router
        self._known = 0
        """Position of the newest snapshot that this router knows of."""
        self._due = Change()
        if ledger.begun is not None:
            self._know(ledger.begun.position, ledger.begun.time)

    def note(self, position: int) -> None:
        """The reading is there."""
        if position >= self._known + self._every:
            self._due.note()

    async def run(self) -> None:
        """One snapshot after another, as they fall due."""
        while True:
            await self._due.wait()
            snapshot = self._ledger.snapshot(self._router)
            if snapshot is None or snapshot.position < self._known + self._every:
                continue
            try:
                await self._write(snapshot)
            except (SnapshotTopicError, SnapshotError) as error:
                metrics.snapshot_failures.labels("write").inc()
                log.warning(
                    "a snapshot could not be written; the router tries again",
                    reason=str(error),
                    next_try_s=PAUSE_AFTER_FAILURE,
                )
                await asyncio.sleep(PAUSE_AFTER_FAILURE)
                self._due.note()

    async def _write(self, snapshot: Snapshot) -> None:
        there = await self._topic.newest_there()
        if there is not None and there.position + self._every > snapshot.position:
            self._know(there.position, there.time)
            return
        began = time.monotonic()
        records = await asyncio.to_thread(records_of, snapshot, self._every, self._keys)
        await self._topic.write(records)
        self._know(snapshot.position, snapshot.time)
        metrics.snapshots_written.inc()
        log.info(
            "snapshot written",
            position=snapshot.position,
            bytes=sum(len(value) for _, value in records),
            s=round(time.monotonic() - began, 3),
        )

    def _know(self, position: int, made: float) -> None:
        self._known = position
        metrics.snapshot_position.set(position)
        metrics.snapshot_age.set_function(lambda: max(0.0, time.time() - made))
