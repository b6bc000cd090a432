"""Changing the rule set: decide, make sure that moving topics find a place, append, complete the rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from mesh.rpc import events
from services.control.decisions.answers import stored_failure
from services.control.decisions.clusters.commands import rules_and_clusters
from services.control.decisions.members.canaries import Canaries, refuse_while_tried
from services.control.decisions.members.members import Members
from services.control.decisions.members.rollouts import Cut, RolloutAbandoned, Rollouts, as_conflict
from services.control.decisions.rules.moves import ChangeWishes, MoveInspector, Moving
from services.control.decisions.turns import Turns
from services.control.domain.errors import Refusal
from services.control.domain.members.canaries import check_may_be_tried
from services.control.domain.rules.rule_set import RuleSet, RuleSetDecision
from services.control.domain.view import RULES_STREAM, MeshView
from services.control.steady_clock import Clock
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import Caller, Draft
from services.control.store.journal import Appended, Ground, Journal, Record, is_rehearsal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections

SETTLE_EVERY = 2.0
"""Seconds between two checks for rollouts that no call finishes."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The result of a command."""

    revision: int
    decision: RuleSetDecision
    view: MeshView
    """The mesh after the command, as far as it was carried out."""
    moving: Moving = field(default_factory=Moving)
    """Topics that move; control has created absent topics, or would create them."""
    switch_ms: float = field(default=0.0)
    warnings: Sequence[str] = ()


Command = Callable[[RuleSet], Awaitable[RuleSetDecision]]
"""A command makes its decision when its turn comes; it may have to read earlier revisions."""
Remember = Callable[[RuleChange | Refusal], StoredAnswer | None]
"""The answer to store for the caller's request_id, given the result."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A command of a caller."""

    command: Command
    wishes: ChangeWishes
    caller: Caller
    remember: Remember
    record: Record | None
    cut: Cut | None


class RuleDecisions:
    """Commands about the rule set."""

    def __init__(
        self,
        journal: Journal,
        turns: Turns,
        connections: Connections,
        members: Members,
        clock: Clock,
        hold_ms: int,
        never_move: Sequence[str],
    ) -> None:
        self._rollouts = Rollouts(journal, members, hold_ms)
        self.canaries = Canaries(journal, turns, members, self._rollouts, clock)
        self._journal = journal
        self._turns = turns
        self._inspector = MoveInspector(connections, never_move)

    async def change(
        self,
        command: Command,
        wishes: ChangeWishes,
        caller: Caller,
        remember: Remember,
        *,
        of_the_past: bool = False,
        record: Record | None = None,
        cut: Cut | None = None,
    ) -> RuleChange:
        """Carries a command out; with `validate_only`, says what it would do.

        `of_the_past`: the command reads earlier revisions from PostgreSQL, so PostgreSQL has to have the last change.
        `cut`: the step between the hold of all gateways and their switch.
        `record`: the audit event of the call, stored with the decision if nothing follows the decision.
        """
        if wishes.validate_only:
            self.check_known(wishes.without_members)
            checked = await self._checked(command, wishes, self._journal.view, create=False)
            if checked.decision.event is None or not checked.decision.event.needs_hold:
                return checked
            return replace(checked, warnings=[*checked.warnings, *self._rollouts.obstacles(wishes.without_members)])
        await self._journal.check_new(caller)
        asked = _Asked(command, wishes, caller, remember, record, cut)
        return await self._turns.begin(self._begun(asked, of_the_past=of_the_past))

    async def followed(self, revision: int, wishes: ChangeWishes, seconds: float) -> None:
        """See Rollouts.followed: the change that made `revision` stands, however this call ends."""
        await self._rollouts.followed(revision, wishes.without_members, seconds)

    def check_known(self, without: Collection[str]) -> None:
        """See Rollouts.check_known."""
        self._rollouts.check_known(without)

    async def settle(self) -> None:
        """See Rollouts.settle; also corrects the stored answer for that change's caller, who may ask again."""
        await self._turns.take(self._settle())

    async def run(self) -> None:
        """Settles, for ever, each rollout that no call finishes; a rollout with a running call is left alone.

        A call may fail although the first event of its rollout is stored: the answer of the database was lost.
        """
        while True:
            await asyncio.sleep(SETTLE_EVERY)
            if self._journal.view.rollout is None or self._journal.why_not_leading:
                continue
            try:
                await self.settle()
            except (Refusal, StoreUnavailableError) as error:
                log.info("control checks a pending rollout again later, as this check failed", reason=str(error))

    async def _settle(self) -> None:
        pending = await self._rollouts.settle()
        if pending is None or not pending.request_id:
            return
        known = await self._journal.store.answer_of(pending.request_id)
        if known is not None:
            cause = "control stopped or lost its database before the rollout was decided"
            conflict = as_conflict(RolloutAbandoned(pending.position, {}, cause))
            await self._journal.store.correct_answer(stored_failure(pending.request_id, known.digest, conflict))

    async def _begun(self, asked: _Asked, *, of_the_past: bool) -> Coroutine[Any, Any, RuleChange]:
        """Decides; what is left of the change needs no turn."""
        if self._journal.has_entered(asked.caller.request_id):
            await self._journal.first_time(asked.caller)
        if asked.cut is None:  # a move was checked as it began; control may have forgotten the gateway since
            self.check_known(asked.wishes.without_members)
        await self._settle()
        ground = self._journal.ground
        if ground.view.routing_position != self._journal.view.routing_position:
            if not of_the_past and (change := await self._ahead(asked, ground)) is not None:
                return change
            await self._journal.settled()
            ground = Ground(self._journal.view)
        planned = await self._checked(
            asked.command, asked.wishes, ground.view, create=asked.wishes.create_missing_topics
        )
        if _is_simple(planned):
            return await self._entered(asked, planned, ground)
        return _known(await self._carried_out(asked, planned))

    async def _ahead(self, asked: _Asked, ground: Ground) -> Coroutine[Any, Any, RuleChange] | None:
        """Decides on rules that PostgreSQL does not have yet. None for all but a simple change.

        A refusal would be wrong if these rules were lost.
        """
        try:
            planned = await self._checked(asked.command, asked.wishes, ground.view, create=False)
        except Refusal:
            return None
        return await self._entered(asked, planned, ground) if _is_simple(planned) else None

    async def _entered(self, asked: _Asked, planned: RuleChange, ground: Ground) -> Coroutine[Any, Any, RuleChange]:
        assert planned.decision.event is not None
        entered = await self._journal.enter(
            [Draft(RULES_STREAM, planned.decision.event)],
            asked.caller,
            ground,
            rests_on=rules_and_clusters,
            answer=lambda new, after: asked.remember(_made(planned, new, after)),
            record=asked.record,
        )
        return self._followed_by_members(planned, entered)

    async def _followed_by_members(self, planned: RuleChange, entered: Awaitable[Appended]) -> RuleChange:
        done = await entered
        change = _made(planned, done.new, done.view)
        if await self._rollouts.applied(change.revision):
            return change
        return replace(change, warnings=[*change.warnings, *self._rollouts.not_applied(change.revision)])

    async def _carried_out(self, asked: _Asked, planned: RuleChange) -> RuleChange:
        """A change that moves topics or is tried first, or no change at all."""
        caller, wishes, remember, decision = asked.caller, asked.wishes, asked.remember, planned.decision
        if decision.event is None:
            if caller.request_id:
                await self._journal.append(
                    [],
                    caller,
                    planned.view,
                    rests_on=rules_and_clusters,
                    answer=lambda new, after: remember(_made(planned, new, after)),
                )
            return replace(planned, view=self._journal.view)
        if decision.event.needs_hold:
            passed_over = await self._rollouts.wait_for_members(wishes.without_members, asked.cut)
            decision.event.without_members.extend(passed_over)
        new = await self._journal.append(
            [Draft(RULES_STREAM, decision.event)],
            caller,
            planned.view,
            rests_on=rules_and_clusters,
            answer=lambda new, after: remember(_made(planned, new, after)),
        )
        change = _made(planned, new, self._journal.view)
        if decision.event.HasField("canary"):
            return replace(change, warnings=[*planned.warnings, *await self.canaries.begun(new[0])])
        try:
            switch_ms = await self._rollouts.run(new[0], caller, wishes.without_members, asked.cut)
        except RolloutAbandoned as abandoned:
            conflict = as_conflict(abandoned)
            await self._correct(remember(conflict))
            raise conflict from None
        behind = self._rollouts.left_behind(new[0].position, decision.event.without_members)
        warnings = [*planned.warnings, *behind]
        change = replace(change, view=self._journal.view, switch_ms=switch_ms, warnings=warnings)
        await self._correct(remember(change))
        return change

    async def _checked(self, command: Command, wishes: ChangeWishes, view: MeshView, *, create: bool) -> RuleChange:
        if not wishes.validate_only:
            refuse_while_tried(view)
        rule_set = view.rule_set
        rule_set.expect(wishes.expected_revision)
        decision = await command(rule_set)
        if decision.event is None:
            return RuleChange(rule_set.revision, decision, view)
        if wishes.canary is not None:
            check_may_be_tried(decision.before, decision.after)
            decision.event.canary.CopyFrom(self._rollouts.canary_of(wishes.canary))
        self._rollouts.check_understood(decision.event)
        covers = [str(cover) for cover in await self._inspector.covers(decision)]
        if not decision.event.needs_hold:
            return RuleChange(rule_set.revision, decision, view, warnings=covers)
        moving = await self._inspector.look(decision, wishes)
        if create and moving.absent and not is_rehearsal.get():
            await self._inspector.create(decision.after, moving.absent)
        return RuleChange(rule_set.revision, decision, view, moving, warnings=[*covers, *moving.warnings])

    async def _correct(self, answer: StoredAnswer | None) -> None:
        if answer is None:
            return
        try:
            await self._journal.store.correct_answer(answer)
        except StoreUnavailableError as error:
            log.warning("the answer of a request was not stored", request_id=answer.request_id, reason=str(error))


def _is_simple(planned: RuleChange) -> bool:
    """Whether the change is done when it is committed: no topic may move, and nobody tries it first."""
    event = planned.decision.event
    return event is not None and not event.needs_hold and not event.HasField("canary")


def _made(planned: RuleChange, new: Sequence[events.Event], view: MeshView) -> RuleChange:
    """The change, now that it has events; without events it is what it was."""
    return replace(planned, revision=new[0].position if new else planned.revision, view=view)


async def _known(change: RuleChange) -> RuleChange:
    return change
