"""The only way to append to the log. Decisions that come at the same time share a transaction.

Theory of operation
1. `enter` makes everything that a decision needs before the transaction begins: its events, the view after them, the
rows of the tables. Decisions enter one after another. The *tip* is the view after the last decision that has entered;
the next decision may rest on the tip (`ground`), before PostgreSQL has the tip.
2. One writer takes all decisions that have entered meanwhile to PostgreSQL, in one transaction. A single decision is a
group of one. Each has its own events, its own stored answer and its own audit event, and its caller hears of it after
the commit. `view` holds what is committed and nothing else.
3. If PostgreSQL goes away, every decision that has entered fails, for each rests on the decisions before it. The tip is
the committed view again, and what was decided on the lost tip does not enter any more (`Ground.era`). If PostgreSQL
refuses what one decision holds, each decision gets a transaction of its own, so that no caller fails for another one.
4. The store refuses a group when the log and the view end at different positions. Then the journal catches up, and the
decisions enter again in their order. A decision whose basis (`rests_on`) is not what it was gets ABORTED.
5. If the last event is not the event that control wrote, control refuses appends: they would cover the change up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Protocol

from prometheus_client import Counter

from mesh.event_log import Chain
from mesh.exposition.histograms import Histogram
from mesh.member_keys import MemberKeys
from mesh.rpc import admin, events
from services.control.domain.change_control.freezing import refuse_while_frozen
from services.control.domain.errors import Conflict, InvalidField, Refusal, Unavailable
from services.control.domain.view import MeshView, ViewFolding
from services.control.steady_clock import Clock
from services.control.store.asked_answers import AskedAnswers
from services.control.store.database import Database, StoreUnavailableError
from services.control.store.drafts import Caller, Draft, events_of
from services.control.store.followed_log import FollowedLog, tell_change
from services.control.store.log import (
    Growth,
    LogChangedError,
    LogMovedError,
    SameRequestError,
    StoredAnswer,
    statements_of,
)
from services.control.store.statements import Statement

APPEND_TRIES = 10
"""Appends that may lose in a row to other writers before the caller gets an error."""
MOST_AT_ONCE = 100
"""Decisions in one transaction."""
FEW_RULES, FEW_BYTES = 5_000, 20_000
"""With no more rules and no larger event, a decision is made on the event loop: a thread would cost more."""
MOST_IDS = 1_000
"""Ids of requests that have entered; more than calls that wait for their turn."""

appended = Counter("kafka_mesh_control_events_appended_total", "Events appended to the log.", ["kind"])
lost_races = Counter(
    "kafka_mesh_control_append_conflicts_total", "Appends that found the log moved and were tried again."
)
group_size = Histogram(
    "kafka_mesh_control_append_group_decisions",
    "Decisions that shared a transaction.",
    buckets=(1, 2, 5, 10, 20, 50, 100),
)


class Record(Protocol):
    """The audit event of a call that does nothing but append: the transaction of the decision stores it."""

    def event_of(self, position: int) -> admin.AuditEvent | None:
        """The audit event, if the decision is at this position; None: the call keeps its audit event by itself."""

    def ended(self, *, stored: bool) -> None:
        """Called when the transaction has ended."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A view on which a command decides; it may be ahead of PostgreSQL."""

    view: MeshView
    era: int | None = None
    """If the view is ahead: the era of the tip. A transaction that fails ends the era."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The events of a decision that is committed, and the view after them."""

    new: list[events.Event]
    view: MeshView


class AlreadyAnswered(Exception):  # noqa: N818  (an outcome)
    """A call with this request_id was decided before: its answer is given again."""

    def __init__(self, answer: StoredAnswer) -> None:
        super().__init__(answer.request_id)
        self.answer = answer


class Rehearsed(Exception):  # noqa: N818  (an outcome)
    """The end of a rehearsal: the command would append these drafts."""

    def __init__(self, drafts: Sequence[Draft]) -> None:
        super().__init__("a rehearsal appends nothing")
        self.drafts = drafts


is_rehearsal: ContextVar[bool] = ContextVar("is_rehearsal", default=False)
"""Whether the present command shows what it would decide: it appends nothing, and changes nothing elsewhere."""
Answer = Callable[[Sequence[events.Event], MeshView], StoredAnswer | None]


@dataclass(frozen=True, slots=True)
class _Tip:
    view: MeshView
    chain: Chain
    time: datetime | None


@dataclass(slots=True, eq=False)
class _Decision:
    """A decision on its way into the log."""

    drafts: Sequence[Draft]
    caller: Caller
    rests_on: Callable[[MeshView], object]
    basis: object
    answer: Answer | None
    record: Record | None
    done: asyncio.Future[Appended]
    tries: int = 0
    before: Chain = field(default_factory=Chain)
    """The chain that it continues."""
    growth: Growth = field(default_factory=lambda: Growth([], MeshView(), Chain(), None))
    statements: list[Statement] = field(default_factory=list)

    def fail(self, error: Exception) -> None:
        if self.record is not None:
            self.record.ended(stored=False)
        self.done.set_exception(error)

    def succeed(self) -> None:
        new = [event for event, _ in self.growth.entries]
        for event in new:
            appended.labels(event.WhichOneof("payload")).inc()
        if self.record is not None:
            self.record.ended(stored=self.growth.record is not None)
        self.done.set_result(Appended(new, self.growth.view))


class Journal(FollowedLog):
    """The log in memory and the way to append to it."""

    def __init__(self, database: Database, clock: Clock, keys: MemberKeys | None = None, vouched_for: int = 0) -> None:
        super().__init__(database, keys, vouched_for)
        self._clock = clock
        self._answers = AskedAnswers(self.store)
        self._entering = asyncio.Lock()
        self._pending: deque[_Decision] = deque()
        """Decisions that have entered and are not committed."""
        self._writer: asyncio.Task[None] | None = None
        self._era = 0
        self._versions_ahead: dict[str, int] = {}
        self._unsure = False
        """Whether PostgreSQL may hold events of an append that has failed here."""
        self._alone = 0
        """Decisions that get transactions of their own: PostgreSQL has refused what one of them holds."""
        self._ids: dict[str, None] = {}

    @property
    def ground(self) -> Ground:
        """The view after every decision that has entered."""
        return Ground(self._tip.view, self._era) if self._pending else Ground(self.view)

    @property
    def _tip(self) -> _Tip:
        if not self._pending:
            return _Tip(self.view, self.chain, self.recent.time)
        last = self._pending[-1].growth
        time = last.entries[-1].event.time.ToDatetime(UTC) if last.entries else self.recent.time
        return _Tip(last.view, last.chain, time)

    async def append(
        self,
        drafts: Sequence[Draft],
        caller: Caller,
        view: MeshView,
        *,
        rests_on: Callable[[MeshView], object],
        answer: Answer | None = None,
    ) -> list[events.Event]:
        """Appends `drafts`, decided on `view`; Conflict when `rests_on` is not what it was there."""
        return (await (await self.enter(drafts, caller, Ground(view), rests_on=rests_on, answer=answer))).new

    async def enter(
        self,
        drafts: Sequence[Draft],
        caller: Caller,
        ground: Ground,
        *,
        rests_on: Callable[[MeshView], object],
        answer: Answer | None = None,
        record: Record | None = None,
    ) -> Awaitable[Appended]:
        """Takes a decision on `ground` to the log; the result comes when the log has it."""
        self.require_leading()
        if is_rehearsal.get():
            refuse_while_frozen(self.view.frozen, (draft.payload for draft in drafts))
            raise Rehearsed(drafts)
        done: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        decision = _Decision(drafts, caller, rests_on, rests_on(ground.view), answer, record, done)
        while self._tip.view.frozen is not self.view.frozen:
            await self.settled()  # nobody is refused for a freeze that may fail
        async with self._entering:
            if ground.era not in (None, self._era):
                raise _changed_meanwhile()
            await self._prepare(decision)
        if caller.request_id:
            self._ids[caller.request_id] = None
            if len(self._ids) > MOST_IDS:
                del self._ids[next(iter(self._ids))]
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="control log writer")
        return asyncio.shield(done)

    async def settled(self) -> None:
        """Returns when the decisions that have entered so far are committed, or have failed."""
        if self._pending:
            await asyncio.wait([self._pending[-1].done])

    async def first_time(self, caller: Caller) -> MeshView:
        """The view for a decision, up to date; AlreadyAnswered as `check_new` says."""
        await self.settled()
        await self.check_new(caller)
        return self.view

    async def check_new(self, caller: Caller) -> None:
        """AlreadyAnswered when this request was decided before. Without a request_id, PostgreSQL is not asked."""
        self.require_leading()
        if not self.loaded or self._unsure:
            await self.catch_up()
            self._unsure = False
        if caller.request_id and (answer := await self._answers.of(caller.request_id)) is not None:
            raise _answered(caller, answer)

    def has_entered(self, request_id: str) -> bool:
        """Whether a decision of this request has entered lately."""
        return request_id in self._ids

    async def _prepare(self, decision: _Decision) -> None:
        """Makes all that the decision adds to the tip, and the decision the last of those that wait."""
        tip, drafts = self._tip, decision.drafts
        refuse_while_frozen(tip.view.frozen, (draft.payload for draft in drafts))
        if decision.rests_on(tip.view) != decision.basis:
            raise _changed_meanwhile()
        versions = await self._versions({draft.stream for draft in drafts})
        # taken here, not in the thread that folds: that thread may outlive a call that is cancelled
        folding = self._take_folding(tip.view)
        work = partial(self._growth_of, decision, tip, folding, versions)
        few = len(tip.view.state.effective.living_rules) <= FEW_RULES
        if few and sum(draft.payload.ByteSize() for draft in drafts) <= FEW_BYTES:
            growth, statements = work()
        else:
            growth, statements = await asyncio.to_thread(work)
        self._folding = folding
        decision.before, decision.growth, decision.statements = tip.chain, growth, statements
        self._versions_ahead |= {event.stream: event.stream_version for event, _ in growth.entries}
        self._pending.append(decision)

    def _growth_of(
        self, decision: _Decision, tip: _Tip, folding: ViewFolding, versions: Mapping[str, int]
    ) -> tuple[Growth, list[Statement]]:
        time = self._clock()
        if tip.time is not None:  # another control, or this one before its start, may have another clock
            time = max(time, tip.time)
        entries, chain = events_of(decision.drafts, decision.caller, tip.chain, versions, time, self._keys)
        new = [event for event, _ in entries]
        for event in new:
            folding.fold(event)
        view = folding.view
        answer = decision.answer(new, view) if decision.answer else None
        record = decision.record.event_of(chain.position) if decision.record else None
        growth = Growth(entries, view, chain, answer, record)
        beside = [draft.beside(event) for draft, event in zip(decision.drafts, new, strict=True) if draft.beside]
        return growth, [*statements_of(tip.view, growth), *beside]

    async def _write(self) -> None:
        try:
            while self._pending:
                group = list(islice(self._pending, 1 if self._alone else MOST_AT_ONCE))
                self._alone = max(0, self._alone - 1)
                error = await self._commit(group)
                if error is not None:
                    async with self._entering:
                        await self._begin_again(group, error)
        finally:
            self._writer = None

    async def _commit(self, group: Sequence[_Decision]) -> Exception | None:
        """Appends the decisions in one transaction; returns the error if that failed."""
        after = group[-1].growth
        async with self._growing:
            try:
                self.require_leading()
                statements = [each for decision in group for each in decision.statements]
                await self.store.append(group[0].before, after.chain, statements)
            except Exception as error:  # noqa: BLE001  # whatever it is, the callers get it
                return error
            self.recent.extend(entry for decision in group for entry in decision.growth.entries)
            self._end_is_signed()
            self._show(after.view, after.chain)
        group_size.observe(len(group))
        for decision in group:
            self._pending.popleft()
            decision.succeed()
        if not self._pending:
            self._versions_ahead.clear()
        return None

    async def _begin_again(self, group: Sequence[_Decision], error: Exception) -> None:
        """After a transaction that failed: decisions enter again where that may help, the others fail."""
        waiting = list(self._pending)
        self._pending.clear()
        self._versions_ahead.clear()
        self._folding = None
        self._era += 1
        answers: dict[str, StoredAnswer] = {}
        try:
            match error:
                case LogMovedError() | SameRequestError():
                    lost_races.inc()
                    await self.catch_up()
                    ids = [each.caller.request_id for each in waiting if each.caller.request_id]
                    answers = await self.store.answers(ids) if ids else {}
                case LogChangedError():
                    tell_change(self.chain.position)
                    raise _log_changed(error)
                case StoreUnavailableError() | Refusal():
                    self._unsure = True
                    raise error
                case _ if len(group) > 1:
                    self._alone = len(group)
                case _:
                    group[0].fail(error)
                    waiting.remove(group[0])
        except Exception as failure:  # noqa: BLE001  # as above
            for decision in waiting:
                decision.fail(failure)
        else:
            for decision in waiting:
                await self._enter_again(decision, answers.get(decision.caller.request_id))

    async def _enter_again(self, decision: _Decision, answer: StoredAnswer | None) -> None:
        decision.tries += 1
        try:
            if answer is not None:  # another replica decided this very request meanwhile
                raise _answered(decision.caller, answer)
            if decision.tries == APPEND_TRIES:
                raise Conflict("BUSY", f"the log was appended to by others {APPEND_TRIES} times in a row: retry")
            await self._prepare(decision)
        except Exception as error:  # noqa: BLE001  # as above
            decision.fail(error)

    async def _versions(self, streams: Collection[str]) -> dict[str, int]:
        """Version of the last event in each stream. If the log has grown since, the append finds that out."""
        known = {stream: version for stream in streams if (version := self.recent.version(stream)) is not None}
        known |= {stream: self._versions_ahead[stream] for stream in streams if stream in self._versions_ahead}
        unknown = [stream for stream in streams if stream not in known]
        return known | await self.store.versions(unknown) if unknown else known


def _answered(caller: Caller, answer: StoredAnswer) -> Exception:
    if answer.digest == caller.digest:
        return AlreadyAnswered(answer)
    return InvalidField(
        "request_id",
        f"{caller.request_id!r} was used for a different request; each request has an id of its own",
    )


def _changed_meanwhile() -> Conflict:
    return Conflict("CHANGED_MEANWHILE", "the mesh was changed by another call meanwhile: read again, then retry")


def _log_changed(error: Exception) -> Unavailable:
    return Unavailable(
        "LOG_CHANGED",
        f"the log was changed outside of control: {error}; `kafka-mesh verify-log` says what differs. "
        "Restore the log from a backup or from mesh.events, then restart control",
    )
