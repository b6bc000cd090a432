"""Commands about drains of clusters, and the loop that leads each open drain to its end.

Theory of operation
1. A drain is planned once: its first event has all topics, those that stay with their reasons.
2. The leading control looks every half second. It notes what has come of moves that were under way, rolls moves back
   whose cuts missed the bound on pauses too often, and begins the next moves within the window.
3. A move that can't begin for a reason that passes (a cluster that is away, a topic that moves) is tried again after
   `AGAIN_S`. Any other reason leaves the topic, and the drain goes on with the others.
4. A certificate that is not confirmed pauses the drain: an operator looks before further topics move.
5. A drain whose topics have all moved or stay ends with a survey of what is still on the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Gauge

from mesh.record_rules import copy_of
from mesh.rpc import drains, events
from services.control.decisions.drains.surveys import Surveys
from services.control.decisions.leading import looks
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.short_ids import new_id
from services.control.decisions.topic_moves.commands import Batch, TopicMoveDecisions
from services.control.domain.drains.drains import (
    DRAINS,
    MOVING,
    RUNNING,
    STATES,
    WAITING,
    Drains,
    begins_next,
    cancelled,
    completed,
    counted,
    distrusts,
    move_of,
    outcome,
    paused,
    resumed,
    rolled_back,
    shown,
    started,
    step_of,
    strayed,
    to_roll_back,
)
from services.control.domain.drains.plans import notes_of, planned
from services.control.domain.errors import Conflict, InvalidField, NotAllowed, Refusal, Unavailable
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import UnreachableError

LOOK_EVERY = 0.5
"""Seconds between two checks of the open drains."""
AGAIN_S = 5.0
"""Seconds after which control tries to begin a move again."""
PASSING = ("TOO_MANY_MOVES", "TOPIC_IS_MOVING", "MESH_FROZEN")
"""Kinds of refusals of a move that pass."""

DrainEvent = (
    events.DrainPaused | events.DrainResumed | events.DrainCancelled | events.DrainMoveEnded | events.DrainTopicLeft
    | events.DrainEnded
)  # fmt: skip
Answer = Callable[[drains.Drain], StoredAnswer | None]
"""The answer to store for a request_id, given the drain."""
Change = Callable[[Drains, str], DrainEvent | None]

log = structlog.get_logger(__name__)
ended_total = Counter("kafka_mesh_control_drains_total", "Drains of clusters that have ended.", ["outcome"])
open_gauge = Gauge("kafka_mesh_control_drains_open", "Drains of clusters that have not ended.")
waiting_gauge = Gauge("kafka_mesh_control_drain_topics_waiting", "Topics of open drains whose moves are still to come.")


class DrainDecisions:
    """The decisions about drains of clusters."""

    def __init__(
        self,
        journal: Journal,
        moves: TopicMoveDecisions,
        surveys: Surveys,
        progress: RecordProgress,
        own_topics: Collection[str],
        check_members: Callable[[Collection[str]], None],
    ) -> None:
        """`check_members`: refuses members that control does not know."""
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._moves = moves
        self._surveys = surveys
        self._progress = progress
        self._own_topics = frozenset(own_topics)
        self._check_members = check_members
        self._resting: dict[tuple[str, str], tuple[float, str]] = {}
        """Drain and topic -> when control tries again to begin its move, and why it could not begin."""

    async def plan(self, spec: drains.DrainSpec, only: Collection[str] | None = None) -> drains.Drain:
        """The drain that the order would begin. Changes nothing. `only`: the topics that it is about."""
        view = self._journal.view
        table = view.state.effective
        whole = completed(spec, table.clusters)
        self._check_members(whole.without_members)
        candidates = await self._surveys.candidates(whole, only)
        topics = planned(whole, table, candidates, list(view.record_rules.values()), view.topic_moves, self._own_topics)
        return counted(drains.Drain(spec=whole, topics=topics, notes=notes_of(whole, table, topics)))

    async def start(
        self,
        spec: drains.DrainSpec,
        caller: Caller,
        answer: Answer,
        only: Collection[str] | None = None,
        batch: Batch | None = None,
    ) -> drains.Drain:
        """Begins a drain. `only`: the topics that it is about; `batch`: the order that the drain is a part of."""
        view = await self._journal.first_time(caller)
        plan = await self.plan(spec, only)
        known = view.drains
        name = f"{DRAINS}/{new_id(DRAINS, known.open, known.ended)}"
        event = started(known, name, plan.spec, plan.topics, plan.notes, caller.actor, caller.reason, self.clock())
        await self._journal.append(
            [Draft(name, event), *([] if batch is None else [batch.draft(name)])],
            caller,
            view,
            rests_on=lambda view: (list(view.drains.open), batch and batch.rests_on(view)),
            answer=lambda _, view: answer(view.drains.get(name)),
        )
        return event.drain

    async def pause(self, name: str, caller: Caller, answer: Answer) -> drains.Drain:
        """Begins no further move."""
        return await self._change(name, paused, caller, answer)

    async def resume(self, name: str, caller: Caller, answer: Answer) -> drains.Drain:
        """Goes on."""
        return await self._change(name, resumed, caller, answer)

    async def cancel(self, name: str, caller: Caller, answer: Answer) -> drains.Drain:
        """Begins no further move, for good."""
        return await self._change(name, cancelled, caller, answer)

    def shown(self, drain: drains.Drain) -> drains.Drain:
        """The drain with the progress of its copies."""
        moving = [each.move for each in drain.topics if each.state == MOVING]
        known = ((move, self._progress.of(copy_of(move))) for move in moving)
        behind = {move: progress.lag for move, progress in known if progress is not None}
        resting = {topic: why for (name, topic), (_, why) in self._resting.items() if name == drain.name}
        return shown(drain, self._journal.view.topic_moves, behind, resting, self.clock())

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            known = self._journal.view.drains.open
            open_gauge.set(len(known))
            waiting_gauge.set(sum(each.state == WAITING for drain in known.values() for each in drain.topics))
            now = _now()
            self._resting = {key: rest for key, rest in self._resting.items() if key[0] in known and now < rest[0]}
            for name in known:
                try:
                    await self._see_to(name)
                except (Refusal, StoreUnavailableError, TimeoutError, UnreachableError) as error:
                    log.info("control checks a drain again later", drain=name, reason=str(error))

    async def _see_to(self, name: str) -> None:
        await self._note_ends(name)
        view = self._journal.view
        drain = view.drains.open.get(name)
        if drain is None:  # another control leads, and has ended it
            return
        for move in to_roll_back(drain, view.topic_moves):
            await self._moves.roll_back(move.name, rolled_back(move))
            log.warning("a move of a drain was rolled back", drain=name, move=move.name, topic=move.spec.topic)
        if view.frozen is None:
            resting = {topic for of, topic in self._resting if of == name}
            for each in begins_next(drain, view.topic_moves, self.clock(), resting):
                await self._begin(drain, each.topic)
        await self._end(name)

    async def _note_ends(self, name: str) -> None:
        """Notes the ends of the moves of a drain."""
        drain = self._journal.view.drains.open.get(name)
        for each in () if drain is None else drain.topics:
            if each.state == MOVING:
                await self._note_end(name, each)

    async def _note_end(self, name: str, topic: drains.DrainTopic) -> None:
        view = self._journal.view
        drain = view.drains.open.get(name)
        step = None if drain is None else step_of(drain, topic, view.topic_moves)
        if drain is None or step is None:
            return
        wrong = distrusts(step)
        pauses = [events.DrainPaused(name=name, problem=wrong)] if wrong and drain.state == RUNNING else []
        await self._append(name, [step, *pauses], Caller(CONTROL))
        if isinstance(step, events.DrainTopicLeft):
            log.warning("a topic of a drain stays", drain=name, topic=topic.topic, reason=step.problem)
        if pauses:
            log.error("a drain is paused: a certificate is not confirmed", drain=name, reason=wrong)

    async def _begin(self, drain: drains.Drain, topic: str) -> None:
        """Begins the move of a topic, leaves the topic, or tries again later."""
        stray = strayed(drain.spec, topic, self._journal.view.state.effective)
        if stray:
            await self._leave(drain.name, topic, stray)
            return
        batch = Batch(
            lambda move: Draft(drain.name, events.DrainMoveBegun(name=drain.name, topic=topic, move=move)),
            lambda view: view.drains.open.get(drain.name),
        )
        caller = Caller(drain.actor, f"{drain.name}: {drain.reason}" if drain.reason else drain.name)
        try:
            await self._moves.start(move_of(drain.spec, topic), caller, lambda _: None, batch)
        except (Conflict, Unavailable, StoreUnavailableError, TimeoutError) as error:
            self._try_again(drain, topic, error)
        except (NotAllowed, InvalidField) as refusal:
            if isinstance(refusal, NotAllowed) and refusal.kind in PASSING:
                self._try_again(drain, topic, refusal)
                return
            await self._leave(drain.name, topic, refusal.message)

    async def _leave(self, name: str, topic: str, why: str) -> None:
        await self._append(name, [events.DrainTopicLeft(name=name, topic=topic, problem=why)], Caller(CONTROL))
        log.warning("a topic of a drain stays", drain=name, topic=topic, reason=why)

    def _try_again(self, drain: drains.Drain, topic: str, error: Exception) -> None:
        self._resting[drain.name, topic] = (_now() + AGAIN_S, str(error) or "no answer in time")
        log.info("the move of a topic begins later", drain=drain.name, topic=topic, reason=str(error))

    async def _end(self, name: str) -> None:
        drain = self._journal.view.drains.open.get(name)
        end = None if drain is None else outcome(drain)
        if drain is None or end is None:
            return
        remainder = await self._surveys.remainder(drain.spec.source_cluster)
        await self._append(name, [events.DrainEnded(name=name, state=end, remainder=remainder)], Caller(CONTROL))
        ended_total.labels(STATES[end]).inc()
        log.info("a drain has ended", drain=name, outcome=STATES[end])

    async def _change(self, name: str, change: Change, caller: Caller, answer: Answer) -> drains.Drain:
        view = await self._journal.first_time(caller)
        event = change(view.drains, name)
        if event is not None:
            await self._append(name, [event], caller, answer)
        return self._journal.view.drains.get(name)

    async def _append(
        self, name: str, new: Collection[DrainEvent], caller: Caller, answer: Answer = lambda _: None
    ) -> None:
        view = self._journal.view
        if name not in view.drains.open:
            raise Conflict("DRAIN_HAS_ENDED", f"{name} has ended meanwhile")
        await self._journal.append(
            [Draft(name, each) for each in new],
            caller,
            view,
            rests_on=lambda view: view.drains.open.get(name),
            answer=lambda _, view: answer(view.drains.get(name)),
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
