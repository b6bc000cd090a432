"""The log as this process knows it: a view in memory that follows PostgreSQL, and the only way to append.

Theory of operation
1. `view` is the fold of the log up to `view.position`; `recent` holds the last events. Both change only in `_take`,
on the event loop.
2. `append` builds the events on the view, and the store refuses when the log is not where the view is. Then the
journal catches up; if what the decision rests on is unchanged, it appends again, otherwise the caller loses with
ABORTED.
3. Readers never touch PostgreSQL for what is in memory, so they are answered while it is down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge

from mesh.rpc import events
from services.control.domain.errors import Conflict, InvalidField, Unavailable
from services.control.domain.freezing import refuse_while_frozen
from services.control.domain.view import MeshView, apply
from services.control.store.database import Database
from services.control.store.log import PAGE, EventLog, LogMovedError, SameRequestError, StoredAnswer, new_event_id

RECENT_EVENTS = 10_000
"""Events kept in memory for ListEvents and WatchEvents; about 5 MB."""
APPEND_TRIES = 10
"""Appends lost in a row to others before the caller is told."""

PAYLOADS: dict[type[Message], str] = {
    events.ClusterRegistered: "cluster_registered",
    events.ClusterUpdated: "cluster_updated",
    events.ClusterRemoved: "cluster_removed",
    events.RuleSetChanged: "rule_set_changed",
    events.RolloutSwitched: "rollout_switched",
    events.RolloutAborted: "rollout_aborted",
    events.ConsumerInstanceRegistered: "consumer_instance_registered",
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
}

log = structlog.get_logger(__name__)
position_gauge = Gauge("control_log_position", "Position of the last event that this process knows.")
appended = Counter("control_events_appended_total", "Events appended to the log.", ["kind"])
lost_races = Counter("control_append_conflicts_total", "Appends that found the log moved and were tried again.")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, why, and under which ids."""

    actor: str
    reason: str = ""
    trace_id: str = ""
    request_id: str = ""
    digest: bytes = b""
    """Fingerprint of the request, so that an id is not used for two different ones."""


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

    def __init__(self, database: Database) -> None:
        self.view = MeshView()
        self.recent: deque[events.Event] = deque(maxlen=RECENT_EVENTS)
        self.loaded = False
        self.why_not_leading = "control is starting"
        """Why this process can't write; empty while it can."""
        self.store = EventLog(database)
        self._growing = asyncio.Lock()
        self._grown = asyncio.Event()

    async def catch_up(self) -> bool:
        """Reads what the log has beyond the view; whether there was anything. StoreUnavailableError when PostgreSQL
        is gone.
        """
        async with self._growing:
            return await self._catch_up()

    async def _catch_up(self) -> bool:
        start = self.view.position
        while True:
            page = await self.store.after(self.view.position)
            self._take(page)
            if len(page) < PAGE:
                self.loaded = True
                return self.view.position > start
            await asyncio.sleep(0)

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
        async with self._growing:
            for _ in range(APPEND_TRIES):
                refuse_while_frozen(self.view.frozen, (draft.payload for draft in drafts))
                before = self.view
                if rests_on(before) != basis:
                    raise Conflict(
                        "CHANGED_MEANWHILE", "the mesh was changed by another call meanwhile: read again, then retry"
                    )
                new = self._build(before, drafts, caller)
                after = before
                for event in new:
                    after = apply(after, event)
                try:
                    await self.store.append(before, after, new, answer(new, after) if answer else None)
                except LogMovedError:
                    lost_races.inc()
                    await self._catch_up()
                    continue
                except SameRequestError:
                    await self._catch_up()
                    break
                self._take(new)
                for event in new:
                    appended.labels(event.WhichOneof("payload")).inc()
                return new
            else:
                raise Conflict("BUSY", f"the log was appended to by others {APPEND_TRIES} times in a row: retry")
        await self.first_time(caller)  # another replica decided this very request meanwhile
        raise Conflict("BUSY", "the same request was decided and forgotten meanwhile: retry")

    async def first_time(self, caller: Caller) -> None:
        """Before a write: brings the view up to date; AlreadyAnswered when this request was decided before."""
        self.require_leading()
        await self.catch_up()
        if not caller.request_id:
            return
        answer = await self.store.answer_of(caller.request_id)
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
        if position >= self.view.position:
            return []
        oldest = self.recent[0].position
        if position + 1 < oldest:
            return None
        start = position + 1 - oldest
        return [self.recent[index] for index in range(start, min(start + limit, len(self.recent)))]

    def _build(self, view: MeshView, drafts: Sequence[Draft], caller: Caller) -> list[events.Event]:
        now = datetime.now(UTC)
        versions = dict(view.stream_versions)
        new: list[events.Event] = []
        for offset, draft in enumerate(drafts, 1):
            versions[draft.stream] = versions.get(draft.stream, 0) + 1
            event = events.Event(
                position=view.position + offset,
                event_id=new_event_id(),
                stream=draft.stream,
                stream_version=versions[draft.stream],
                actor=caller.actor,
                reason=caller.reason,
                request_id=caller.request_id,
                trace_id=caller.trace_id,
            )
            event.time.FromDatetime(now)
            getattr(event, PAYLOADS[type(draft.payload)]).CopyFrom(draft.payload)
            new.append(event)
        return new

    def _take(self, new: Sequence[events.Event]) -> None:
        for event in new:
            if event.position > self.view.position:
                self.view = apply(self.view, event)
                self.recent.append(event)
        position_gauge.set(self.view.position)
        if new:
            self._grown.set()
            self._grown = asyncio.Event()
