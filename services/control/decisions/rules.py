"""Changing the rule set: decide, make sure that topics which move find a place, append, see the rollout through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from mesh.routing import RoutingTable
from mesh.rpc import events
from services.control.decisions.answers import stored_failure
from services.control.decisions.clusters import routing_position
from services.control.decisions.rollouts import RolloutAbandoned, Rollouts, as_conflict
from services.control.decisions.turns import Turns
from services.control.domain.errors import NotAllowed, Refusal, Unavailable
from services.control.domain.moves import (
    Move,
    checked,
    clusters_that_may_lose,
    planned_moves,
    refuse_absent,
    refuse_narrow,
)
from services.control.domain.rules import RuleSet, RuleSetDecision
from services.control.domain.view import RULES_STREAM, MeshView
from services.control.store.database import StoreUnavailableError
from services.control.store.journal import Caller, Draft, Journal
from services.control.store.log import StoredAnswer
from services.control.upstream.connections import Connections, UnreachableError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChangeWishes:
    """How a change is wanted (ChangeOptions of the contract)."""

    expected_revision: int = 0
    validate_only: bool = False
    create_missing_topics: bool = False
    allow_unreachable: bool = False


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What came of a command."""

    revision: int
    decision: RuleSetDecision
    moves: Sequence[Move] = ()
    created_topics: Sequence[str] = ()
    switch_ms: float = field(default=0.0)


Command = Callable[[RuleSet], RuleSetDecision]
Remember = Callable[[RuleChange | Refusal, MeshView], StoredAnswer | None]
"""What to store for the caller's request_id, given what came of it and the view after it."""


class RuleDecisions:
    """Commands about the rule set."""

    def __init__(
        self,
        journal: Journal,
        turns: Turns,
        connections: Connections,
        rollouts: Rollouts,
        never_move: Sequence[str] = (),
    ) -> None:
        self._never_move = never_move  # the mesh's own log stays where it is, whatever the rules say
        self._journal = journal
        self._turns = turns
        self._connections = connections
        self._rollouts = rollouts

    async def change(self, command: Command, wishes: ChangeWishes, caller: Caller, remember: Remember) -> RuleChange:
        """Carries a command out, or says what it would do with `validate_only`."""
        if wishes.validate_only:
            return await self._checked(command, wishes, create=False)
        return await self._turns.take(self._change(command, wishes, caller, remember))

    async def settle(self) -> None:
        """See Rollouts.settle; also corrects what the caller of that change will be told when it asks again."""
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
        planned = await self._checked(command, wishes, create=wishes.create_missing_topics)
        decision = planned.decision
        if decision.event is None:
            if caller.request_id:
                await self._journal.append(
                    [], caller, rests_on=routing_position, answer=lambda _, after: remember(planned, after)
                )
            return planned
        if decision.event.needs_hold:
            await self._rollouts.wait_for_routers()

        def outcome(new: Sequence[events.Event]) -> RuleChange:
            return RuleChange(new[0].position, decision, planned.moves, planned.created_topics)

        new = await self._journal.append(
            [Draft(RULES_STREAM, decision.event)],
            caller,
            rests_on=routing_position,
            answer=lambda new, after: remember(outcome(new), after),
        )
        if not decision.event.needs_hold:
            await self._rollouts.applied(new[0].position)
            return outcome(new)
        try:
            switch_ms = await self._rollouts.run(new[0], caller)
        except RolloutAbandoned as abandoned:
            conflict = as_conflict(abandoned)
            await self._correct(remember(conflict, self._journal.view))
            raise conflict from None
        change = RuleChange(new[0].position, decision, planned.moves, planned.created_topics, switch_ms)
        await self._correct(remember(change, self._journal.view))
        return change

    async def _checked(self, command: Command, wishes: ChangeWishes, *, create: bool) -> RuleChange:
        rule_set = self._journal.view.rule_set
        rule_set.expect(wishes.expected_revision)
        decision = command(rule_set)
        if decision.event is None or not decision.event.needs_hold:
            return RuleChange(rule_set.revision, decision)
        moves, absent = await self._moves(decision, wishes)
        if create and absent:
            await self._create(decision.after, absent)
        return RuleChange(rule_set.revision, decision, moves, [move.topic for move in absent])

    async def _moves(self, decision: RuleSetDecision, wishes: ChangeWishes) -> tuple[list[Move], list[Move]]:
        """Topics that move, and those of them that are to be created on their target."""
        before, after = decision.before, decision.after
        losing = clusters_that_may_lose(before, after)
        topics = await self._topics(before, losing, "topics that may move away from it", wishes)
        moves = planned_moves(before, after, topics, never=self._never_move)
        targets = {move.target for move in moves if move.target is not None}
        topics |= await self._topics(after, targets - topics.keys(), "topics that move to it", wishes)
        result = checked(moves, topics)
        refuse_narrow(result)
        if not wishes.create_missing_topics:
            refuse_absent(result)
        return moves, list(result.absent)

    async def _topics(
        self, table: RoutingTable, names: Iterable[str], what: str, wishes: ChangeWishes
    ) -> dict[str, dict[str, int]]:
        """What is on the clusters; one that does not answer refuses the change, or is left out where that is wished."""
        wanted = sorted(names)
        answers = await asyncio.gather(
            *(self._connections.topics(table.clusters[name]) for name in wanted), return_exceptions=True
        )
        found: dict[str, dict[str, int]] = {}
        for name, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, UnreachableError):
                if wishes.allow_unreachable:
                    log.warning("rules change unchecked", cluster=name, reason=str(answer))
                    continue
                raise Unavailable(
                    "CLUSTER_UNREACHABLE",
                    f"{answer}; the {what} can't be checked, so the rules stay as they are; "
                    "to change them unchecked set allow_unreachable",
                    {"cluster": name},
                )
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found

    async def _create(self, table: RoutingTable, absent: Sequence[Move]) -> None:
        """Creates topics on their targets, like they are on their sources."""
        by_pair: dict[tuple[str, str], list[Move]] = {}
        for move in absent:
            by_pair.setdefault((move.source, move.target or ""), []).append(move)
        for (source, target), moves in by_pair.items():
            try:
                names = [move.topic for move in moves]
                settings = await self._connections.topic_settings(table.clusters[source], names)
                wanted = {move.topic: (move.partitions, settings[move.topic]) for move in moves}
                await self._connections.create_topics(table.clusters[target], wanted)
            except UnreachableError as error:
                raise NotAllowed(
                    "TOPIC_NOT_CREATED",
                    f"clusters/{target}",
                    f"topics {', '.join(names)} could not be created on {target!r}: {error}; "
                    "create them there, then retry",
                ) from None
            log.info("created topics", topics=names, source=source, target=target)

    async def _correct(self, answer: StoredAnswer | None) -> None:
        if answer is None:
            return
        try:
            await self._journal.store.correct_answer(answer)
        except StoreUnavailableError as error:
            log.warning("the answer of a request was not stored", request_id=answer.request_id, reason=str(error))
