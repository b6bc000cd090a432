"""The log as this process knows it: a view in memory that follows PostgreSQL, and the only way to append.

Theory of operation
1. `view` is the fold of the log up to `view.position`, `chain` the hash of the event there; `recent` holds the last
events. They change only in `_show`, on the event loop.
2. A start takes the newest snapshot (`snapshots.py`) and the events after it. An older view (`view_at`) comes from the
newest snapshot below it.
3. `append` prepares everything before the transaction begins: the events, the view after them, the rows of the tables.
The store refuses them when the log and the view end at different positions. Then the journal catches up. If the basis
of the decision (`rests_on`) is unchanged, the journal prepares and appends again; otherwise the caller gets ABORTED.
4. An event that does not fit the chain was changed outside of control. Control says so in its log and in a metric. The
mesh continues with the log as it is, for a control that does not start helps nobody. If the last event is not the event
that control wrote, control refuses appends: they would cover the change up.
5. Control answers reads from memory without PostgreSQL, also while PostgreSQL is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import structlog
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge

from mesh.event_log import FORMAT, MOST_EVENT_BYTES, Chain
from mesh.rpc import events
from services.control.domain.errors import Conflict, InvalidField, Unavailable
from services.control.domain.freezing import refuse_while_frozen
from services.control.domain.view import MeshView, ViewFolding
from services.control.steady_clock import Clock
from services.control.store.database import Database
from services.control.store.log import (
    PAGE,
    Entry,
    EventLog,
    Growth,
    LogChangedError,
    LogMovedError,
    SameRequestError,
    StoredAnswer,
    new_event_id,
    statements_of,
)
from services.control.store.recent import RecentEvents
from services.control.store.snapshots import Snapshots
from services.control.store.statements import Statement

RECENT_AT_START = 1_000
"""Events before the snapshot that a start reads too; few, so that a start does not take long."""
EVENTS_PER_TURN = 20
"""Events folded in a row, before others get their turn on the event loop."""
APPEND_TRIES = 10
"""Appends that may lose in a row to other writers before the caller gets an error."""

PAYLOADS: dict[type[Message], str] = {
    events.ClusterRegistered: "cluster_registered",
    events.ClusterUpdated: "cluster_updated",
    events.ClusterRemoved: "cluster_removed",
    events.RuleSetChanged: "rule_set_changed",
    events.RolloutSwitched: "rollout_switched",
    events.RolloutAborted: "rollout_aborted",
    events.ConsumerInstanceRemoved: "consumer_instance_removed",
    events.ChangeScheduled: "change_scheduled",
    events.ScheduledChangeEnded: "scheduled_change_ended",
    events.MeshFrozen: "mesh_frozen",
    events.MeshThawed: "mesh_thawed",
    events.RecordRuleCreated: "record_rule_created",
    events.RecordRuleUpdated: "record_rule_updated",
    events.RecordRulePaused: "record_rule_paused",
    events.RecordRuleResumed: "record_rule_resumed",
    events.RecordRuleRewound: "record_rule_rewound",
    events.RecordRuleRemoved: "record_rule_removed",
    events.GroupOffsetsSyncOrdered: "group_offsets_sync_ordered",
    events.SidecarOrdered: "sidecar_ordered",
    events.SidecarOrderHandedOver: "sidecar_order_handed_over",
    events.SidecarOrderEnded: "sidecar_order_ended",
    events.ReplayStarted: "replay_started",
    events.ReplayAssigned: "replay_assigned",
    events.ReplayProgressed: "replay_progressed",
    events.ReplayCancelOrdered: "replay_cancel_ordered",
    events.ReplayEnded: "replay_ended",
    events.TransactionEndOrdered: "transaction_end_ordered",
}

log = structlog.get_logger(__name__)
position_gauge = Gauge("control_log_position", "Position of the last event that this process knows.")
changed_gauge = Gauge("control_log_changed_at", "Position by which the log was found to be changed; 0 while it is not.")
appended = Counter("control_events_appended_total", "Events appended to the log.", ["kind"])
lost_races = Counter("control_append_conflicts_total", "Appends that found the log moved and were tried again.")


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a command, with its reason and its ids."""

    actor: str
    reason: str = ""
    trace_id: str = ""
    request_id: str = ""
    digest: bytes = b""
    """Fingerprint of the request, so that a request_id is not used for two different requests."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a position."""

    stream: str
    payload: Message


class AlreadyAnswered(Exception):  # noqa: N818  (an outcome)
    """A call with this request_id was decided before: its answer is given again."""

    def __init__(self, answer: StoredAnswer) -> None:
        super().__init__(answer.request_id)
        self.answer = answer


class Journal:
    """The log in memory and the way to append to it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clock = clock
        self.view = MeshView()
        self.chain = Chain()
        self.recent = RecentEvents()
        self.loaded = False
        self.why_not_leading = "control is starting"
        """Why this process can't write; empty while it can."""
        self.store = EventLog(database)
        self.snapshots = Snapshots(database)
        self._folding: ViewFolding | None = None
        """Carries `view` on; None after an append that failed half-way."""
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
            self.recent.extend(known)
            self.view, self.chain = found
        await self._catch_up()
        head = await self.store.head()
        if head.position == self.chain.position and head.hash != self.chain.hash:
            _tell_change(head.position)
        self.loaded = True

    async def _catch_up(self) -> None:
        folding, chain = self._take_folding(), self.chain
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

    async def append(
        self,
        drafts: Sequence[Draft],
        caller: Caller,
        *,
        rests_on: Callable[[MeshView], object],
        answer: Callable[[Sequence[events.Event], MeshView], StoredAnswer | None] | None = None,
    ) -> list[events.Event]:
        """Appends `drafts`, decided on the present view; Conflict when `rests_on` is not what it was."""
        self.require_leading()
        basis = rests_on(self.view)

        def prepare(folding: ViewFolding, versions: Mapping[str, int]) -> tuple[Growth, list[Statement]]:
            entries, chain = self._build(drafts, caller, versions)
            new = [event for event, _ in entries]
            for event in new:
                folding.fold(event)
            growth = Growth(entries, folding.view, chain, answer(new, folding.view) if answer else None)
            return growth, statements_of(self.view, growth)

        async with self._growing:
            for _ in range(APPEND_TRIES):
                refuse_while_frozen(self.view.frozen, (draft.payload for draft in drafts))
                if rests_on(self.view) != basis:
                    raise Conflict(
                        "CHANGED_MEANWHILE", "the mesh was changed by another call meanwhile: read again, then retry"
                    )
                try:
                    versions = await self._versions({draft.stream for draft in drafts})
                    # taken here, not in the thread that folds: that thread may outlive a call that is cancelled
                    folding = self._take_folding()
                    # with thousands of rules it takes as long as a heartbeat may
                    growth, statements = await asyncio.to_thread(prepare, folding, versions)
                    await self.store.append(self.chain, growth, statements)
                except LogMovedError:
                    lost_races.inc()
                    await self._catch_up()
                    continue
                except LogChangedError as error:
                    _tell_change(self.chain.position)
                    raise Unavailable(
                        "LOG_CHANGED",
                        f"the log was changed outside of control: {error}; `kafka-mesh verify-log` says what differs. "
                        "Restore the log from a backup or from mesh.events, then restart control",
                    ) from None
                except SameRequestError:
                    await self._catch_up()
                    break
                self.recent.extend(growth.entries)
                self._show(growth.view, growth.chain)
                self._folding = folding
                new = [event for event, _ in growth.entries]
                for event in new:
                    appended.labels(event.WhichOneof("payload")).inc()
                return new
            else:
                raise Conflict("BUSY", f"the log was appended to by others {APPEND_TRIES} times in a row: retry")
        await self.first_time(caller)  # another replica decided this very request meanwhile
        raise Conflict("BUSY", "the same request was decided and forgotten meanwhile: retry")

    async def _versions(self, streams: Collection[str]) -> dict[str, int]:
        """Version of the last event in each stream. If the log has grown since, the append finds that out."""
        known = {stream: version for stream in streams if (version := self.recent.version(stream)) is not None}
        unknown = [stream for stream in streams if stream not in known]
        return known | await self.store.versions(unknown) if unknown else known

    async def first_time(self, caller: Caller) -> None:
        """Before a write: brings the view up to date; AlreadyAnswered when this request was decided before."""
        self.require_leading()
        async with self._growing:
            if not self.loaded:
                await self._load()
            position, answer = await self.store.position_and_answer(caller.request_id)
            if position > self.view.position:
                await self._catch_up()
        if answer is None:
            return
        if answer.digest != caller.digest:
            raise InvalidField(
                "request_id",
                f"{caller.request_id!r} was used for a different request; each request has an id of its own",
            )
        raise AlreadyAnswered(answer)

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

    def _build(self, drafts: Sequence[Draft], caller: Caller, versions: Mapping[str, int]) -> tuple[list[Entry], Chain]:
        time = self._clock()
        if self.recent.time is not None:  # another control, or this one before its start, may have another clock
            time = max(time, self.recent.time)
        last = dict(versions)
        chain = self.chain
        new: list[Entry] = []
        for draft in drafts:
            last[draft.stream] += 1
            event = events.Event(
                position=chain.position + 1,
                event_id=new_event_id(),
                stream=draft.stream,
                stream_version=last[draft.stream],
                actor=caller.actor,
                reason=caller.reason,
                request_id=caller.request_id,
                trace_id=caller.trace_id,
                format=FORMAT,
                previous_hash=chain.hash,
            )
            event.time.FromDatetime(time)
            getattr(event, PAYLOADS[type(draft.payload)]).CopyFrom(draft.payload)
            body = event.SerializeToString(deterministic=True)
            if len(body) > MOST_EVENT_BYTES:
                raise InvalidField(
                    "request",
                    f"the decision would be an event of {len(body)} bytes, and {MOST_EVENT_BYTES} are possible: "
                    "make several smaller changes",
                )
            chain = chain.after(event, body)
            new.append(Entry(event, body))
        return new, chain

    def _take_folding(self) -> ViewFolding:
        """A folding that stands at the view. The caller stores the folding again when the log has its events."""
        folding, self._folding = self._folding, None
        return folding if folding is not None and folding.view is self.view else ViewFolding(self.view)

    def _fold(self, folding: ViewFolding, chain: Chain, new: Sequence[Entry]) -> Chain:
        """Continues `folding` with these events, and returns the chain after them."""
        for entry in new:
            event, body = entry
            if event.position > folding.position:
                folding.fold(event)
                if not chain.fits(event):
                    _tell_change(chain.position)
                chain = chain.after(event, body)
                self.recent.extend([entry])
        return chain

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
            _tell_change(event.position)


def _tell_change(position: int) -> None:
    changed_gauge.set(position)
    log.error("the log was changed outside of control; `kafka-mesh verify-log` says more", position=position)
