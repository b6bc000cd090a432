"""Commands about moves of topics with their records, and the loop that leads each open move to its end.

Theory of operation
1. A move is open from its first event on, and routers copy as long as it is open (`mesh/record_rules.py`).
2. When the copy has caught up, control records that it cuts. A stitched move has no copy, so it cuts at once. Then
   control changes the rule as an operator would, with a cut: gateways hold, the copy reaches the source's end, gateways
   switch.
3. If the cut takes too long, the rollout is aborted as any other, and the copy goes on. Control tries again later.
4. If control stops amid the cut, the next one reads the rules. A rollout without an end is aborted, so the topic is
   on one of the two clusters, and the move is done or copies on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import structlog
from prometheus_client import Counter, Gauge

from mesh import durations
from mesh.record_rules import copy_of
from mesh.routing import ExactName, Place, RoutingTable
from mesh.rpc import events, topic_moves
from services.control.decisions.leading import looks
from services.control.decisions.members.rollouts import Cut, CutMissedError
from services.control.decisions.records.progress import RecordProgress
from services.control.decisions.rules.commands import Command, RuleChange, RuleDecisions
from services.control.decisions.rules.moves import ChangeWishes
from services.control.decisions.short_ids import new_id
from services.control.decisions.topic_moves.choosing import chosen
from services.control.decisions.topic_moves.cut import FOLLOWS, Groups, TopicCut
from services.control.decisions.topic_moves.preparation import Preparation
from services.control.decisions.topic_moves.producers import ProducersAtCut
from services.control.decisions.topic_moves.stitched_cut import StitchedCut
from services.control.domain.errors import Conflict, NotAllowed, Refusal
from services.control.domain.rules import edits
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.stitches.logs import STITCHES, set_to, taken_back
from services.control.domain.topic_moves.moves import (
    CUTTING,
    DONE,
    FAILED,
    TOPIC_MOVES,
    WORDS,
    cancelled,
    is_elsewhere,
    is_near,
    is_switched,
    led_elsewhere,
    lost,
)
from services.control.domain.topic_moves.two_cuts import (
    STITCH_THEN_COPY,
    parts_of,
    stitched_by,
    stitches_next,
)
from services.control.domain.view import MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections, UnreachableError

LOOK_EVERY = 0.5
"""Seconds between two checks of the open moves."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds after a cut that was given up; the pause doubles."""
TROUBLE_S = 10.0
"""Seconds that a copy stands before the log of events says so: a broker that restarts takes less."""
TROUBLE_AGAIN_S = 60.0
"""Seconds until the log of events may show another reason of the same trouble."""
NO_ROUTER = "no router has begun the copy; start a router, or see to the routers' connections with control"

MoveEvent = (
    events.TopicMoveStarted | events.TopicMoveHindered | events.TopicMoveCutBegun | events.TopicMoveCutReached
    | events.TopicMoveCutGivenUp | events.TopicMoveStitched | events.TopicMoveEnded
)  # fmt: skip
Answer = Callable[[topic_moves.MoveWithRecords], StoredAnswer | None]
"""The answer to store for a request_id, given the move."""


@dataclass(frozen=True, slots=True)
class Batch:
    """An order that is about several moves. One transaction begins a move, and says so to the order."""

    draft: Callable[[str], Draft]
    """The order's own event, given the name of the move."""
    rests_on: Callable[[MeshView], object]


log = structlog.get_logger(__name__)
ended_total = Counter("kafka_mesh_control_topic_moves_total", "Moves of topics with their records.", ["outcome"])
open_gauge = Gauge("kafka_mesh_control_topic_moves_open", "Moves of topics that have not ended.")


class TopicMoveDecisions:
    """The decisions about moves of topics with their records."""

    def __init__(
        self,
        journal: Journal,
        rules: RuleDecisions,
        connections: Connections,
        progress: RecordProgress,
        preparation: Preparation,
    ) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._journal = journal
        self._rules = rules
        self._connections = connections
        self._progress = progress
        self._preparation = preparation
        self._not_before: dict[str, float] = {}
        self._troubled: dict[str, float] = {}
        """Moves whose copies stand: when control checks them again."""

    async def start(
        self, spec: topic_moves.TopicMoveSpec, caller: Caller, answer: Answer, batch: Batch | None = None
    ) -> topic_moves.MoveWithRecords:
        """Begins a move; control creates the topic on its target. `batch`: the order that the move is a part of."""
        view = await self._journal.first_time(caller)
        self._rules.check_known(spec.without_members)
        known = view.topic_moves
        name = f"{TOPIC_MOVES}/{new_id(TOPIC_MOVES, known.open, known.ended)}"
        event = await chosen(name, spec, view, caller, self.clock(), self._preparation)
        await self._journal.append(
            [Draft(name, event), *([] if batch is None else [batch.draft(name)])],
            caller,
            view,
            rests_on=lambda view: (
                [each.name for each in view.topic_moves.open.values() if each.spec.topic == spec.topic],
                batch and batch.rests_on(view),
            ),
            answer=lambda _, view: answer(view.topic_moves.get(name)),
        )
        return self.shown(event.move)

    async def cancel(self, name: str, caller: Caller, answer: Answer) -> topic_moves.MoveWithRecords:
        """Ends a move before its cut."""
        view = await self._journal.first_time(caller)
        await self._append(name, cancelled(view.topic_moves, name), caller, answer)
        return self._journal.view.topic_moves.get(name)

    async def roll_back(self, name: str, problem: str) -> None:
        """Ends a move before its cut, because its order sets a bound that the move does not keep."""
        end = cancelled(self._journal.view.topic_moves, name)
        end.problem = problem
        await self._append(name, end, Caller(CONTROL))

    def shown(self, move: topic_moves.MoveWithRecords) -> topic_moves.MoveWithRecords:
        """The move with the progress of its copy."""
        progress = self._progress.of(copy_of(move.name))
        if progress is None:
            return move
        after = topic_moves.MoveWithRecords()
        after.CopyFrom(move)
        after.progress.CopyFrom(progress)
        return after

    async def run(self) -> None:
        """Runs for ever; does nothing while another control leads."""
        async for _ in looks(self._journal, lambda: LOOK_EVERY):
            known = self._journal.view.topic_moves.open
            open_gauge.set(len(known))
            self._not_before = {name: at for name, at in self._not_before.items() if name in known}
            self._troubled = {name: at for name, at in self._troubled.items() if name in known}
            for move in known.values():
                try:
                    await self._see_to(move)
                except (Refusal, StoreUnavailableError, TimeoutError, UnreachableError) as error:
                    log.info("control checks a move again later", move=move.name, reason=str(error))

    async def _see_to(self, move: topic_moves.MoveWithRecords) -> None:
        if move.state == CUTTING:  # an earlier control has begun the cut, or its end was not stored
            await self._rules.settle()
            await self._close(move)
            return
        if is_elsewhere(move, self._journal.view.state.effective):
            await self._fail(move, led_elsewhere(move).message)
            return
        if stitches_next(move):
            await self._see_to_stitched(move)
            return
        progress = self._progress.of(copy_of(move.name))
        if progress is not None and progress.broken:
            await self._fail(move, progress.problem)
            return
        if await self._is_lost(move, NO_ROUTER if progress is None else progress.problem):
            return
        if is_near(move, progress) and _now() >= self._not_before.get(move.name, 0):
            await self._cut(move)

    async def _see_to_stitched(self, move: topic_moves.MoveWithRecords) -> None:
        if _now() < self._not_before.get(move.name, 0):
            return
        view, copy = self._journal.view, move.copy
        way = Place(copy.source_cluster, copy.topic), Place(copy.target_cluster, copy.target_topic)
        try:
            await self._preparation.prepare(move.spec, view, way, tail=move.spec.kind == STITCH_THEN_COPY)
        except NotAllowed as refusal:  # nothing is lost: nothing was copied
            await self._fail(move, refusal.message)
            return
        await self._cut(move)

    async def _is_lost(self, move: topic_moves.MoveWithRecords, problem: str) -> bool:
        """Tells a problem that lasts, and its end. True if the move has failed."""
        if not problem:
            self._troubled.pop(move.name, None)
            if move.hindered:
                await self._append(move.name, events.TopicMoveHindered(name=move.name), Caller(CONTROL))
            return False
        if _now() < self._troubled.setdefault(move.name, _now() + TROUBLE_S):
            return False
        self._troubled[move.name] = _now() + TROUBLE_AGAIN_S
        reason = await self._loss(move)
        if reason:
            await self._fail(move, reason)
        elif not (move.hindered and move.problem == problem):
            event = events.TopicMoveHindered(name=move.name, problem=problem)
            await self._append(move.name, event, Caller(CONTROL))
            log.warning("the copy of a move stands", move=move.name, reason=problem)
        return bool(reason)

    async def _loss(self, move: topic_moves.MoveWithRecords) -> str:
        clusters, copy = self._journal.view.state.effective.clusters, move.copy
        try:
            here, there = await asyncio.gather(
                self._connections.partitions_of(clusters[copy.source_cluster], copy.topic),
                self._connections.partitions_of(clusters[copy.target_cluster], copy.target_topic),
            )
        except UnreachableError:
            return ""
        return lost(move, here, there)

    async def _fail(self, move: topic_moves.MoveWithRecords, problem: str) -> None:
        end = events.TopicMoveEnded(name=move.name, state=FAILED, problem=problem)
        await self._append(move.name, end, Caller(CONTROL))

    async def _cut(self, move: topic_moves.MoveWithRecords) -> None:
        table = self._journal.view.state.effective
        caller = Caller(move.actor, f"{move.name} cuts: {move.reason}" if move.reason else f"{move.name} cuts")
        source = table.clusters[move.copy.source_cluster]
        partitions = await self._connections.partitions_of(source, move.copy.topic) or 0
        parts = parts_of(move)
        if parts:  # the tail begins somewhere, and the log where its copy does
            try:
                await self._preparation.check_shares(move.spec.topic, table, Place(source.name, move.copy.topic))
            except NotAllowed as refusal:
                await self._give_up(move, refusal.message)
                return
            logs = await self._connections.log_ranges(
                table.clusters[move.copy.target_cluster], {move.copy.target_topic: partitions}
            )
        else:
            logs = await self._connections.log_ranges(source, {move.copy.topic: partitions})
        [starts] = ({number: each.start for number, each in log.items()} for log in logs.values())
        groups = Groups(self._connections, move, table)
        for _ in range(FOLLOWS):
            if await groups.follow():
                break
        if groups.refused:  # nobody has to wait for that
            await self._give_up(move, groups.problem)
            return
        async with AsyncExitStack() as connections:
            try:
                producers = await connections.enter_async_context(ProducersAtCut(source, move, len(starts)))
            except CutMissedError as error:  # nobody has to wait for that, either
                await self._give_up(move, str(error))
                return
            await self._append(move.name, events.TopicMoveCutBegun(name=move.name), Caller(CONTROL))
            cut = self._step(move, table, starts, groups, producers)
            try:
                change = await self._rules.change(_switch(move), _wishes(move), caller, lambda _: None, cut=cut)
            except Refusal as error:
                await self._give_up(move, str(error))
                return
        await self._close(move, change)

    def _step(
        self,
        move: topic_moves.MoveWithRecords,
        table: RoutingTable,
        starts: Mapping[int, int],
        groups: Groups,
        producers: ProducersAtCut,
    ) -> Cut:
        """The step between the hold of all gateways and their switch."""
        if not stitches_next(move):
            reached = partial(self._append, move.name, caller=Caller(CONTROL))
            return TopicCut(self._connections, move, table, starts, groups, producers, reached)

        async def stitched(reached: events.TopicMoveCutReached, changed: events.StitchedLogsChanged) -> None:
            await self._append(move.name, reached, Caller(CONTROL), beside=changed)

        return StitchedCut(
            self._connections, move, lambda: self._journal.view.state, starts, groups, producers, stitched, self.clock
        )

    async def _close(self, move: topic_moves.MoveWithRecords, change: RuleChange | None = None) -> None:
        """Records what the rules say about a move that was cutting."""
        view = self._journal.view
        if not is_switched(move, view.state.effective):
            await self._give_up(move, "control stopped or lost its database amid the cut")
            return
        revision = view.rules_revision if change is None else change.revision
        pause = durations.of_ms(0 if change is None else round(change.switch_ms))
        if stitches_next(move) and move.spec.kind == STITCH_THEN_COPY:
            stitched = stitched_by(move, view.state.effective, revision, pause)
            await self._append(move.name, stitched, Caller(CONTROL))
            return
        end = events.TopicMoveEnded(name=move.name, state=DONE, revision=revision, pause=pause)
        dissolved = set_to(move.spec.topic, None) if move.copy.parts else None
        await self._append(move.name, end, Caller(CONTROL), beside=dissolved)
        if move.copy.parts:
            await self._preparation.release(move)

    async def _give_up(self, move: topic_moves.MoveWithRecords, problem: str) -> None:
        pause = min(FIRST_PAUSE * 2**move.cuts_given_up, LONGEST_PAUSE)
        self._not_before[move.name] = _now() + pause
        given_up = events.TopicMoveCutGivenUp(name=move.name, problem=problem)
        beside = taken_back(self._journal.view.state.effective, move.spec.topic)
        await self._append(move.name, given_up, Caller(CONTROL), beside=beside)
        log.warning("the cut of a move was given up", move=move.name, reason=problem, next_try_s=pause)

    async def _append(
        self,
        name: str,
        event: MoveEvent,
        caller: Caller,
        answer: Answer = lambda _: None,
        beside: events.StitchedLogsChanged | None = None,
    ) -> None:
        """`beside`: the change of stitched logs that belongs to the event; one transaction stores both."""
        view = self._journal.view
        if name not in view.topic_moves.open:
            raise Conflict("MOVE_HAS_ENDED", f"{name} has ended meanwhile")
        await self._journal.append(
            [Draft(name, event), *([] if beside is None else [Draft(STITCHES, beside)])],
            caller,
            view,
            rests_on=lambda view: (
                view.topic_moves.open.get(name),
                beside and view.state.effective.policies.stitch_policy,
            ),
            answer=lambda _, view: answer(view.topic_moves.get(name)),
        )
        if isinstance(event, events.TopicMoveEnded):
            ended_total.labels(WORDS[event.state]).inc()
            log.info("a move of a topic has ended", move=name, outcome=WORDS[event.state])


def _switch(move: topic_moves.MoveWithRecords) -> Command:
    """The command that leads the topic to the move's target."""
    named = "" if move.copy.target_topic == move.spec.topic else move.copy.target_topic
    fields = edits.RuleFields(target_cluster=move.copy.target_cluster, upstream_topic=named)

    async def command(rules: RuleSet) -> RuleSetDecision:
        if is_elsewhere(move, rules.table):
            raise led_elsewhere(move)
        return rules.change(edits.Set(ExactName(move.spec.topic), fields, edits.Place.FIRST))

    return command


def _wishes(move: topic_moves.MoveWithRecords) -> ChangeWishes:
    return ChangeWishes(
        accept_skip=True,
        without_members=frozenset(move.spec.without_members),
        stitched_topic=move.spec.topic if stitches_next(move) or move.copy.parts else "",
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
