"""The log as this process knows it: a view in memory that follows PostgreSQL.

Theory of operation
1. `view` is the fold of the log up to `view.position`, `chain` the hash of the event there; `recent` holds the last
events. They change only in `_show`, on the event loop.
2. A start takes the newest snapshot (`snapshots.py`) and the events after it. An older view (`view_at`) comes from the
newest snapshot below it.
3. An event that does not fit the chain was changed outside of control. Control says so in its log and in a metric. The
mesh continues with the log as it is, for a control that does not start helps nobody.
4. Control answers reads from memory without PostgreSQL, also while PostgreSQL is down.
5. With a certificate, control signs its events. A signed log may end with events that have no signature: somebody else
has written those, or control had no certificate for a time. Control appends nothing then, for its signature would vouch
for them. An operator who has checked them names the last one (`vouched_for`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import structlog
from prometheus_client import Gauge

from mesh.event_log import CONTROL, Chain, SignedEnd
from mesh.member_keys import MemberKeys
from mesh.rpc import events
from services.control.domain.errors import Unavailable
from services.control.domain.view import MeshView, ViewFolding
from services.control.store.database import Database
from services.control.store.log import PAGE, Entry, EventLog
from services.control.store.recent import RecentEvents
from services.control.store.snapshots import Snapshots

RECENT_AT_START = 1_000
"""Events before the snapshot that a start reads too; few, so that a start does not take long."""
EVENTS_PER_TURN = 20
"""Events folded in a row, before others get their turn on the event loop."""

log = structlog.get_logger(__name__)
position_gauge = Gauge("kafka_mesh_control_log_position", "Position of the last event that this process knows.")
unsigned_gauge = Gauge(
    "kafka_mesh_control_log_unsigned_from",
    "Position of the first event at the end of a signed log that control has not signed; 0: there is none.",
)
changed_gauge = Gauge(
    "kafka_mesh_control_log_changed_at", "Position of the first event that somebody changed; 0 while none is known."
)


class FollowedLog:
    """The log in memory."""

    def __init__(self, database: Database, keys: MemberKeys | None = None, vouched_for: int = 0) -> None:
        self._keys = keys
        self._signed_end = SignedEnd(None if keys is None else keys.signatures(CONTROL))
        self._vouched_for = vouched_for
        self.view = MeshView()
        self.chain = Chain()
        self.recent = RecentEvents()
        self.loaded = False
        self.why_not_leading = "control is starting"
        """Why this process can't write; empty while it can."""
        self.store = EventLog(database)
        self.snapshots = Snapshots(database, keys)
        self._folding: ViewFolding | None = None
        """Carries a view on; None after an append that failed half-way."""
        self._growing = asyncio.Lock()
        self._grown = asyncio.Event()

    async def catch_up(self, to: int | None = None) -> None:
        """Reads the events of the log beyond the view; none, if the view holds the event `to`. StoreUnavailableError
        when PostgreSQL is away.
        """
        async with self._growing:
            if not self.loaded:
                await self._load()
            elif to is None or self.view.position < to:
                await self._catch_up()

    async def _load(self) -> None:
        """Reads the newest snapshot and the events after it; also some events before it, for calls that list events."""
        if self.view.position == 0 and (found := await self.snapshots.newest()) is not None:
            position = found[1].position
            start = max(0, position - RECENT_AT_START)
            known = await self.store.entries_after(start, position - start)
            _check_links(known)
            for entry in known:
                self._look_at_signature(entry)
            self.recent.extend(known)
            self.view, self.chain = found
            if known:
                self.chain = replace(self.chain, key_id=known[-1].event.signature.key_id)
        await self._catch_up()
        head = await self.store.head()
        if head.position == self.chain.position and head.hash != self.chain.hash:
            tell_change(head.position)
        self.loaded = True

    async def _catch_up(self) -> None:
        folding, chain = self._take_folding(self.view), self.chain
        try:
            while True:
                page = await self.store.entries_after(folding.position)
                chain = self._fold(folding, chain, page)
                if len(page) < PAGE:
                    break
                await asyncio.sleep(0)
        finally:
            self._show(folding.view, chain)
        self._folding = folding

    async def view_at(self, position: int) -> MeshView:
        """The mesh as it was after the event at `position`; as it is now, where the log does not reach that far."""
        if position >= self.view.position:
            return self.view
        found = await self.snapshots.newest(position)
        folding = ViewFolding(MeshView() if found is None else found[0])
        while folding.position < position:
            page = await self.store.after(folding.position, min(PAGE, position - folding.position))
            for event in page:
                folding.fold(event)
                if event.position % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return folding.view

    def require_loaded(self) -> None:
        """Reads are answered from memory, once the log has been read."""
        if not self.loaded:
            raise Unavailable("STARTING", f"control has not read its log yet: {self.why_not_leading}")

    def require_leading(self) -> None:
        """Writes go through one replica, with PostgreSQL behind it."""
        if self.why_not_leading:
            raise Unavailable(
                "NOT_WRITABLE", f"{self.why_not_leading}; what is decided stays in force, changes have to wait"
            )
        end = self._signed_end
        if end.unsigned_from and self.view.position > self._vouched_for:
            raise Unavailable(
                "LOG_NOT_SIGNED",
                f"control has not signed event {end.unsigned_from} ({end.reason}), and adds nothing to it: "
                f"check the events up to {self.view.position} with kafka-mesh verify-log. If they are yours, start "
                f"control with KAFKA_MESH_CONTROL_VOUCHED_FOR={self.view.position}",
            )

    async def grown_beyond(self, position: int) -> None:
        """Returns when the view is beyond `position`."""
        while self.view.position <= position:
            await self._grown.wait()

    def since(self, position: int, limit: int = PAGE) -> list[events.Event] | None:
        """Events after `position` from memory, oldest first; None when memory does not reach back that far."""
        found = self._in_memory(position, limit)
        return None if found is None else [event for event, _ in found]

    async def entries_after(self, position: int) -> list[Entry]:
        """Events after `position` as they stand in the log, from memory where it reaches back that far."""
        found = self._in_memory(position, PAGE)
        return await self.store.entries_after(position) if found is None else found

    def _in_memory(self, position: int, limit: int) -> list[Entry] | None:
        return [] if position >= self.view.position else self.recent.after(position, limit)

    def _take_folding(self, view: MeshView) -> ViewFolding:
        """A folding that stands at the view. The caller stores the folding again when it has gone on."""
        folding, self._folding = self._folding, None
        return folding if folding is not None and folding.view is view else ViewFolding(view)

    def _fold(self, folding: ViewFolding, chain: Chain, new: Sequence[Entry]) -> Chain:
        """Continues `folding` with these events, and returns the chain after them."""
        for entry in new:
            event, body = entry
            if event.position > folding.position:
                folding.fold(event)
                if not chain.fits(event):
                    tell_change(chain.position)
                chain = chain.after(event, body)
                self._look_at_signature(entry)
                self.recent.extend([entry])
        return chain

    def _look_at_signature(self, entry: Entry) -> None:
        known = self._signed_end.unsigned_from
        self._signed_end.take(*entry)
        found = self._signed_end.unsigned_from
        if found and not known:
            reason = self._signed_end.reason
            log.error(
                "an event of the log is not signed by control: run kafka-mesh verify-log", position=found, reason=reason
            )
        if found != known:
            unsigned_gauge.set(found)

    def _end_is_signed(self) -> None:
        self._signed_end.sign()
        unsigned_gauge.set(0)

    def _show(self, view: MeshView, chain: Chain) -> None:
        """Makes this view and chain the present ones."""
        has_grown = view.position > self.view.position
        self.view, self.chain = view, chain
        position_gauge.set(view.position)
        if has_grown:
            self._grown.set()
            self._grown = asyncio.Event()


def _check_links(entries: Sequence[Entry]) -> None:
    """Checks events that are read again, before a snapshot: each event against the next event."""
    for (event, body), (following, _) in pairwise(entries):
        if event.previous_hash and not Chain().after(event, body).fits(following):
            tell_change(event.position)


def tell_change(position: int) -> None:
    changed_gauge.set(position)
    log.error("the log was changed outside of control: run kafka-mesh verify-log", position=position)
