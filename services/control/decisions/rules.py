"""Changing the rule set: decide, make sure that moving topics find a place, append, complete the rollout."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from mesh.rpc import events
from services.control.decisions.answers import stored_failure
from services.control.decisions.canaries import Canaries, refuse_while_tried
from services.control.decisions.clusters import routing_position
from services.control.decisions.moving import ChangeWishes, Moving, Scout
from services.control.decisions.rollouts import RolloutAbandoned, Rollouts, as_conflict
from services.control.decisions.turns import Turns
from services.control.domain.canaries import check_may_be_tried
from services.control.domain.errors import Refusal
from services.control.domain.rules import RuleSet, RuleSetDecision
from services.control.domain.view import RULES_STREAM, MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import Caller, Draft, Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The result of a command."""

    revision: int
    decision: RuleSetDecision
    moving: Moving = field(default_factory=Moving)
    """Topics that move; control has created absent topics, or would create them."""
    switch_ms: float = field(default=0.0)
    warnings: Sequence[str] = ()


Command = Callable[[RuleSet], Awaitable[RuleSetDecision]]
"""A command makes its decision when its turn comes; it may have to read earlier revisions."""
Remember = Callable[[RuleChange | Refusal, MeshView], StoredAnswer | None]
"""The answer to store for the caller's request_id, given the result and the view after it."""


class RuleDecisions:
    """Commands about the rule set."""

    def __init__(
        self,
        journal: Journal,
        turns: Turns,
        connections: Connections,
        rollouts: Rollouts,
        canaries: Canaries,
        never_move: Sequence[str] = (),
    ) -> None:
        self._canaries = canaries
        self._journal = journal
        self._turns = turns
        self._scout = Scout(connections, never_move)
        self._rollouts = rollouts

    async def change(self, command: Command, wishes: ChangeWishes, caller: Caller, remember: Remember) -> RuleChange:
        """Carries a command out; with `validate_only`, says what it would do."""
        if wishes.validate_only:
            checked = await self._checked(command, wishes, create=False)
            if checked.decision.event is None or not checked.decision.event.needs_hold:
                return checked
            return replace(checked, warnings=[*checked.warnings, *self._rollouts.obstacles(wishes.without_members)])
        return await self._turns.take(self._change(command, wishes, caller, remember))

    async def followed(self, revision: int, wishes: ChangeWishes, seconds: float) -> None:
        """See Rollouts.followed: the change that made `revision` stands, however this call ends."""
        await self._rollouts.followed(revision, wishes.without_members, seconds)

    async def settle(self) -> None:
        """See Rollouts.settle; also corrects the stored answer for that change's caller, who may ask again."""
        await self._turns.take(self._settle())

    async def _settle(self) -> None:
        pending = await self._rollouts.settle()
        if pending is None or not pending.request_id:
            return
        known = await self._journal.store.answer_of(pending.request_id)
        if known is not None:
            cause = "control stopped or lost its database before the rollout was decided"
            conflict = as_conflict(RolloutAbandoned(pending.position, {}, cause))
            await self._journal.store.correct_answer(stored_failure(pending.request_id, known.digest, conflict))

    async def _change(self, command: Command, wishes: ChangeWishes, caller: Caller, remember: Remember) -> RuleChange:
        await self._journal.first_time(caller)
        await self._settle()
        refuse_while_tried(self._journal.view)
        planned = await self._checked(command, wishes, create=wishes.create_missing_topics)
        decision = planned.decision
        if decision.event is None:
            if caller.request_id:
                await self._journal.append(
                    [], caller, rests_on=routing_position, answer=lambda _, after: remember(planned, after)
                )
            return planned
        if decision.event.needs_hold:
            passed_over = await self._rollouts.wait_for_members(wishes.without_members)
            decision.event.without_members.extend(passed_over)

        def outcome(new: Sequence[events.Event]) -> RuleChange:
            return replace(planned, revision=new[0].position)

        new = await self._journal.append(
            [Draft(RULES_STREAM, decision.event)],
            caller,
            rests_on=routing_position,
            answer=lambda new, after: remember(outcome(new), after),
        )
        if decision.event.HasField("canary"):
            return replace(outcome(new), warnings=[*planned.warnings, *await self._canaries.begun(new[0])])
        if not decision.event.needs_hold:
            await self._rollouts.applied(new[0].position)
            return outcome(new)
        try:
            switch_ms = await self._rollouts.run(new[0], caller, wishes.without_members)
        except RolloutAbandoned as abandoned:
            conflict = as_conflict(abandoned)
            await self._correct(remember(conflict, self._journal.view))
            raise conflict from None
        behind = self._rollouts.left_behind(new[0].position, decision.event.without_members)
        change = replace(outcome(new), switch_ms=switch_ms, warnings=[*planned.warnings, *behind])
        await self._correct(remember(change, self._journal.view))
        return change

    async def _checked(self, command: Command, wishes: ChangeWishes, *, create: bool) -> RuleChange:
        self._rollouts.check_known(wishes.without_members)
        rule_set = self._journal.view.rule_set
        rule_set.expect(wishes.expected_revision)
        decision = await command(rule_set)
        if decision.event is None:
            return RuleChange(rule_set.revision, decision)
        if wishes.canary is not None:
            check_may_be_tried(decision.before, decision.after)
            decision.event.canary.CopyFrom(self._rollouts.canary_of(wishes.canary))
        self._rollouts.check_understood(decision.event)
        covers = [str(cover) for cover in await self._scout.covers(decision)]
        if not decision.event.needs_hold:
            return RuleChange(rule_set.revision, decision, warnings=covers)
        moving = await self._scout.look(decision, wishes)
        if create and moving.absent:
            await self._scout.create(decision.after, moving.absent)
        return RuleChange(rule_set.revision, decision, moving, warnings=[*covers, *moving.warnings])

    async def _correct(self, answer: StoredAnswer | None) -> None:
        if answer is None:
            return
        try:
            await self._journal.store.correct_answer(answer)
        except StoreUnavailableError as error:
            log.warning("the answer of a request was not stored", request_id=answer.request_id, reason=str(error))
