"""Proposals: made, approved, refused, withdrawn, expired; and the loop that finishes what was approved.

Theory of operation
1. The approval is one event, and the change is the next one. The call of the second person makes the change.
2. If that control stops in between, the next leader finds an approved proposal, and makes the same call: its request_id
   follows from the proposal, so the change is made once.
3. Two approvals at the same time rest on the same open proposal. The journal takes one, and refuses the other.
4. Nobody repeats an emergency: its request may have held secrets. The loop only records its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import structlog
from prometheus_client import Counter, Gauge

from mesh.rpc import events, proposals
from mesh.wording import proposal_state_word
from services.control.decisions.change_control.schedules import is_passing, problem_of
from services.control.decisions.positions import appended
from services.control.decisions.short_ids import new_id
from services.control.domain.change_control import proposals as aggregate
from services.control.domain.change_control.approvals import APPROVALS, set_policy
from services.control.domain.change_control.proposals import PROPOSALS, Person, Plan, Proposals
from services.control.domain.errors import NotAllowed, Refusal
from services.control.domain.view import MeshView
from services.control.steady_clock import Clock
from services.control.store.database import StoreUnavailableError
from services.control.store.drafts import CONTROL, Caller, Draft
from services.control.store.journal import Journal
from services.control.store.log import StoredAnswer

LOOK_EVERY = 1.0
"""Seconds between two checks for proposals that have expired, or whose change was begun elsewhere."""
LOST = "control stopped during the call: the history says whether the change was made"

log = structlog.get_logger(__name__)
open_gauge = Gauge("kafka_mesh_control_proposals_open", "Changes that wait for a second person.")
age_gauge = Gauge(
    "kafka_mesh_control_oldest_proposal_age_seconds", "Age of the oldest change that waits for a second person."
)
ended_total = Counter("kafka_mesh_control_proposals_total", "Proposals that came to an end.", ["outcome"])
break_glass_total = Counter(
    "kafka_mesh_control_break_glass_total", "Changes that an admin made without the second person that they need."
)

Answer = Callable[[str], StoredAnswer | None]
"""The answer to store for a request_id, given the name of the proposal."""


class ApprovedCommands(Protocol):
    """The calls that can be approved, as `api/approved_calls.py` makes them."""

    async def check(self, proposal: proposals.Proposal) -> int:
        """The revision of the rules now. Raises the error with which control would refuse the change now, also because
        its plan is another one.
        """

    async def carry_out(self, proposal: proposals.Proposal, rules_revision: int) -> int:
        """Makes the call for the proposer; the position of its decision. `rules_revision`: 0 for any."""


class ProposalDecisions:
    """Commands about proposals and about the policy of approvals."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._one = asyncio.Lock()
        """Proposals that come at once are made one after the other: each counts those before it."""
        self._running: dict[str, asyncio.Task[None]] = {}
        """The approved changes that this control is making, by the names of their proposals."""
        self._emergencies: set[str] = set()
        """Emergencies whose calls run here."""

    @property
    def known(self) -> Proposals:
        return self._journal.view.proposals

    async def set_policy(
        self,
        request: proposals.SetApprovalPolicyRequest,
        caller: Caller,
        answer: Callable[[int], StoredAnswer | None],
    ) -> int:
        """The position of the event; of the earlier event if the policy is this already."""
        view = await self._journal.first_time(caller)
        known = view.proposals.policy
        event = set_policy(known, request)
        drafts = [] if event is None else [Draft(APPROVALS, event)]
        return await appended(
            self._journal, drafts, known.revision, caller, view, lambda view: view.proposals.policy.revision, answer
        )

    async def propose(self, proposal: proposals.Proposal, plan: Plan, caller: Caller, answer: Answer) -> str:
        """The name of the proposal: of the open one if the same person has proposed the very same change."""
        async with self._one:
            view = await self._journal.first_time(caller)
            same = aggregate.same_of(self.known, proposal, plan)
            if same is not None:
                if caller.request_id:
                    await self._journal.append(
                        [], caller, view, rests_on=lambda view: None, answer=lambda _new, _view: answer(same.name)
                    )
                return same.name
            name = self._name(proposal)
            event = aggregate.propose(self.known, proposal, plan, self._clock())
            await self._journal.append(
                [Draft(name, event)],
                caller,
                view,
                rests_on=lambda view: (len(view.proposals.open), view.proposals.policy.revision),
                answer=lambda _new, _view: answer(name),
            )
            return name

    async def break_glass(self, proposal: proposals.Proposal, plan: Plan, caller: Caller) -> str:
        """The name of the proposal of a change that its proposer makes at once."""
        view = await self._journal.first_time(caller)
        name = self._name(proposal)
        event = aggregate.break_glass(proposal, plan, self._clock())
        self._emergencies.add(name)
        try:
            await self._journal.append(
                [Draft(name, event), Draft(name, events.ProposalApproved(name=name, break_glass=True))],
                caller,
                view,
                rests_on=lambda view: name in view.proposals.open,
            )
        except BaseException:
            self._emergencies.discard(name)
            raise
        break_glass_total.inc()
        return name

    async def approve(
        self, name: str, person: Person, caller: Caller, answer: Answer, commands: ApprovedCommands
    ) -> int:
        """The revision of the rules on which the plan was checked. Conflict if somebody else has decided first."""
        view = await self._journal.first_time(caller)
        proposal = aggregate.still_open(self.known, name, self._clock())
        aggregate.check_second_person(self.known.policy, proposal, person)
        rules_revision = await commands.check(proposal)
        await self._decide(proposal, events.ProposalApproved(name=name), caller, view, answer)
        return rules_revision

    async def refuse(self, name: str, caller: Caller, answer: Answer) -> None:
        """Ends a proposal without the change."""
        await self._end_open(name, proposals.PROPOSAL_STATE_REFUSED, caller, answer)

    async def withdraw(self, name: str, person: Person, caller: Caller, answer: Answer) -> None:
        """Ends the own proposal without the change."""
        proposer = self.known.get(name).proposer
        if person.name != proposer:
            raise NotAllowed("NOT_THE_PROPOSER", name, f"{proposer} has proposed {name}; {person.name} can refuse it")
        await self._end_open(name, proposals.PROPOSAL_STATE_WITHDRAWN, caller, answer)

    async def applied(self, name: str, revision: int) -> None:
        """Records the end of a change that was made."""
        await self._close(name, proposals.PROPOSAL_STATE_APPLIED, revision)

    async def failed(self, name: str, problem: str) -> None:
        """Records the end of a change that was approved and could not be made."""
        await self._close(name, proposals.PROPOSAL_STATE_FAILED, problem=problem)

    async def see_through(self, name: str, commands: ApprovedCommands, seconds: float, rules_revision: int = 0) -> None:
        """Makes the change of an approved proposal, and waits for its end at most so long."""
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.create_task(
                self._carry_out(self.known.get(name), commands, rules_revision), name=name
            )
            task.add_done_callback(lambda _: self._running.pop(name, None))
        await asyncio.wait([task], timeout=seconds)

    async def run(self, commands: ApprovedCommands) -> None:
        """Runs for ever; does nothing while another control leads."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = self._clock()
            waiting = self.known.waiting()
            open_gauge.set(len(waiting))
            age_gauge.set(max(((now - _began(each)).total_seconds() for each in waiting), default=0.0))
            if self._journal.why_not_leading:
                continue
            try:
                await self._look(now, commands)
            except (Refusal, StoreUnavailableError, TimeoutError) as error:
                log.info("control checks proposals again later", reason=str(error) or "it took too long")

    async def _look(self, now: datetime, commands: ApprovedCommands) -> None:
        for name, proposal in list(self.known.open.items()):
            if proposal.state == proposals.PROPOSAL_STATE_OPEN:
                if aggregate.is_over(proposal, now):
                    await self._close(name, proposals.PROPOSAL_STATE_EXPIRED)
            elif not proposal.break_glass:
                await self.see_through(name, commands, LOOK_EVERY)
            elif name not in self._emergencies:
                await self._close(name, proposals.PROPOSAL_STATE_FAILED, problem=LOST)

    async def _carry_out(self, proposal: proposals.Proposal, commands: ApprovedCommands, rules_revision: int) -> None:
        """An error that passes is no end: the loop makes the call again."""
        name = proposal.name
        try:
            try:
                revision = await commands.carry_out(proposal, rules_revision)
            except (StoreUnavailableError, TimeoutError):
                raise
            except Exception as error:
                if is_passing(error):
                    raise
                await self.failed(name, problem_of(name, error))
            else:
                await self.applied(name, revision)
        except (Refusal, StoreUnavailableError, TimeoutError) as error:
            log.info("control makes an approved change again later", proposal=name, reason=str(error))

    async def _end_open(
        self, name: str, state: proposals.ProposalState.ValueType, caller: Caller, answer: Answer
    ) -> None:
        view = await self._journal.first_time(caller)
        proposal = aggregate.still_open(self.known, name, self._clock())
        await self._decide(proposal, aggregate.closed(name, state), caller, view, answer)
        ended_total.labels(proposal_state_word(state)).inc()

    async def _decide(
        self,
        proposal: proposals.Proposal,
        event: events.ProposalApproved | events.ProposalClosed,
        caller: Caller,
        view: MeshView,
        answer: Answer,
    ) -> None:
        """Conflict if somebody else has decided since the proposal was read, while its plan was checked for example."""
        aggregate.still_open(self.known, proposal.name, self._clock())
        await self._journal.append(
            [Draft(proposal.name, event)],
            caller,
            view,
            rests_on=lambda view: view.proposals.open.get(proposal.name),
            answer=lambda _new, _view: answer(proposal.name),
        )

    async def _close(
        self, name: str, state: proposals.ProposalState.ValueType, revision: int = 0, problem: str = ""
    ) -> None:
        event = aggregate.closed(name, state, revision, problem)
        await self._journal.settled()
        if name not in self.known.open:  # another control was faster
            return
        await self._journal.append(
            [Draft(name, event)],
            Caller(CONTROL),
            self._journal.view,
            rests_on=lambda view: view.proposals.open.get(name),
        )
        self._emergencies.discard(name)
        ended_total.labels(proposal_state_word(state)).inc()
        log.info(
            "a proposal came to its end",
            proposal=name,
            outcome=proposal_state_word(state),
            revision=revision,
            problem=problem,
        )

    def _name(self, proposal: proposals.Proposal) -> str:
        proposal.name = f"{PROPOSALS}/{new_id(PROPOSALS, self.known.open, self.known.ended)}"
        return proposal.name


def _began(proposal: proposals.Proposal) -> datetime:
    return proposal.propose_time.ToDatetime(UTC)
