"""The proposal aggregate: a change that waits for a second person, and what becomes of it.

Open -> approved -> applied or failed; open -> refused, withdrawn or expired. An emergency begins as approved. The
approval is in the log before control makes the change, so a control that takes the lead finishes what was approved.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from mesh.rpc import events, proposals
from mesh.wording import proposal_state_word
from services.control.domain.change_control.approvals import expiry_s, fold_policy
from services.control.domain.errors import Conflict, InvalidField, NotAllowed, Unknown

PROPOSALS = "proposals"
"""The collection, in resource names and streams."""
MOST_OPEN = 100
"""Proposals that wait; control holds each in memory, with its request and its plan."""
MOST_OPEN_OF_ONE = 20
"""One proposer has no more, so that nobody takes the room of all others."""
KEPT = 100
"""Ended proposals that control still shows; the history has all."""
LONGEST_REQUEST = 256 * 1024
"""Bytes; some thousand rules."""
MOST_LINES = 200
LONGEST_LINE = 500
"""Characters."""
REQUEST_IDS = uuid.UUID("6d657368-0000-4000-8000-70726f706f73")
"""Namespace of the request ids of approved calls; any UUID would do, as long as it stays."""


@dataclass(frozen=True, slots=True)
class Proposals:
    """The policy, the proposals that are not ended, and the last ended ones."""

    policy: proposals.ApprovalPolicy = field(default_factory=proposals.ApprovalPolicy)
    open: Mapping[str, proposals.Proposal] = field(default_factory=dict)
    """Open or approved, by name; oldest first."""
    ended: Mapping[str, proposals.Proposal] = field(default_factory=dict)
    """By name; the one that ended first comes first."""

    def get(self, name: str) -> proposals.Proposal:
        found = self.open.get(name) or self.ended.get(name)
        if found is None:
            raise Unknown(name, f"there is no proposal {name!r} among those of late; the history has earlier ones")
        return found

    def waiting(self) -> list[proposals.Proposal]:
        """Those that wait for a second person."""
        return [each for each in self.open.values() if each.state == proposals.PROPOSAL_STATE_OPEN]

    def newest_first(self) -> Iterator[proposals.Proposal]:
        yield from reversed(self.open.values())  # type: ignore[call-overload]  # dicts are reversible
        yield from reversed(self.ended.values())  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True)
class Plan:
    """The effect of a change, as a dry run found it."""

    lines: Sequence[proposals.PlanLine]

    @property
    def hash(self) -> bytes:
        fixed = sorted({each.fixed for each in self.lines if each.fixed})
        return sha256("\n".join(fixed).encode()).digest()

    def shown(self) -> list[proposals.PlanLine]:
        """As a proposal keeps them."""
        lines = [
            proposals.PlanLine(text=each.text[:LONGEST_LINE], fixed=each.fixed[:LONGEST_LINE])
            for each in islice(self.lines, MOST_LINES)
        ]
        left_out = len(self.lines) - len(lines)
        return [*lines, proposals.PlanLine(text=f"and {left_out} more facts")] if left_out else lines


def propose(known: Proposals, proposal: proposals.Proposal, plan: Plan, now: datetime) -> events.ChangeProposed:
    """The event of a new proposal; `proposal` says all but its plan, its times and its state."""
    check_size(proposal)
    waiting = known.waiting()
    own = sum(each.proposer == proposal.proposer for each in waiting)
    if len(waiting) >= MOST_OPEN or own >= MOST_OPEN_OF_ONE:
        whose = f"{own} proposals of {proposal.proposer}" if own >= MOST_OPEN_OF_ONE else f"{len(waiting)} proposals"
        raise NotAllowed(
            "TOO_MANY_PROPOSALS",
            PROPOSALS,
            f"{whose} wait for approval, and no more are possible: withdraw some, or have them approved or refused",
        )
    return events.ChangeProposed(proposal=_made(proposal, plan, now, now + timedelta(seconds=expiry_s(known.policy))))


def same_of(known: Proposals, proposal: proposals.Proposal, plan: Plan) -> proposals.Proposal | None:
    """The open proposal of the same change by the same person: a program that asks every minute proposes once."""
    asked = (proposal.proposer, proposal.on_behalf_of, proposal.method, proposal.request.value, plan.hash)
    for each in known.waiting():
        if (each.proposer, each.on_behalf_of, each.method, each.request.value, each.plan_hash) == asked:
            return each
    return None


def break_glass(proposal: proposals.Proposal, plan: Plan, now: datetime) -> events.ChangeProposed:
    """The event of a change that its proposer makes at once, in an emergency."""
    check_size(proposal)
    return events.ChangeProposed(proposal=_made(proposal, plan, now, now))


def check_size(proposal: proposals.Proposal) -> None:
    """Refuses a request that is too large for a proposal."""
    size = len(proposal.request.value)
    if size > LONGEST_REQUEST:
        raise InvalidField(
            "request", f"has {size} bytes, and a proposal has room for {LONGEST_REQUEST}: make several smaller changes"
        )


def _made(proposal: proposals.Proposal, plan: Plan, now: datetime, end: datetime) -> proposals.Proposal:
    made = proposals.Proposal()
    made.CopyFrom(proposal)
    made.plan.extend(plan.shown())
    made.plan_hash = plan.hash
    made.state = proposals.PROPOSAL_STATE_OPEN
    made.propose_time.FromDatetime(now)
    made.expire_time.FromDatetime(end)
    return made


def still_open(known: Proposals, name: str, now: datetime) -> proposals.Proposal:
    """The proposal, if it waits for a second person; otherwise Conflict with what became of it."""
    proposal = known.get(name)
    if proposal.state != proposals.PROPOSAL_STATE_OPEN:
        state, by = proposal_state_word(proposal.state), f" by {proposal.decided_by}" if proposal.decided_by else ""
        raise Conflict("PROPOSAL_DECIDED", f"{name} is {state}{by} already", {"state": state})
    if is_over(proposal, now):
        raise Conflict("PROPOSAL_DECIDED", f"{name} has expired: make the change again", {"state": "expired"})
    return proposal


def is_over(proposal: proposals.Proposal, now: datetime) -> bool:
    return now >= proposal.expire_time.ToDatetime(UTC)


def check_second_person(policy: proposals.ApprovalPolicy, proposal: proposals.Proposal, who: Person) -> None:
    """Refuses to count somebody as the second person."""
    name = proposal.name
    if who.on_behalf_of:
        raise NotAllowed(
            "NOT_IN_PERSON", name, f"{who.name} calls on behalf of {who.on_behalf_of}; a second person calls in person"
        )
    same = {proposal.proposer.casefold(), proposal.on_behalf_of.casefold()}
    if who.name.casefold() in same:
        raise NotAllowed("SAME_PERSON", name, f"{who.name} has proposed {name}; it needs a second person")
    check_is_person(policy, name, who)


def check_is_person(policy: proposals.ApprovalPolicy, subject: str, who: Person) -> None:
    """Refuses the word of a program, unless the policy lets programs approve."""
    if (who.is_automation or who.name in policy.automations) and not policy.automations_may_approve:
        raise NotAllowed(
            "NOT_A_PERSON",
            subject,
            f"{who.name} is a program, and the policy of approvals takes the word of people alone "
            "(automations_may_approve)",
        )


@dataclass(frozen=True, slots=True)
class Person:
    """A caller who has proved a name, and decides about a proposal."""

    name: str
    on_behalf_of: str = ""
    is_automation: bool = False
    """The caller's token says that it is a program's."""


def check_plan(proposal: proposals.Proposal, now: Plan) -> None:
    """Refuses an approval of a plan that is not what the change would do by now."""
    if now.hash == proposal.plan_hash:
        return
    before, after = ({each.fixed: each.text for each in side if each.fixed} for side in (proposal.plan, now.shown()))
    told = [f"no more: {text}" for fixed, text in before.items() if fixed not in after]
    told += [f"new: {text}" for fixed, text in after.items() if fixed not in before]
    raise Conflict(
        "PLAN_CHANGED",
        f"the mesh has changed since {proposal.name} was made, and the change would do something else now "
        f"({'; '.join(told[:10]) or 'beyond the facts that the proposal shows'}): withdraw or refuse it, and make the "
        "change again",
    )


def request_of(proposal: proposals.Proposal) -> Message:
    """The request of the change. Unknown if this release has no such call: another release has taken the proposal."""
    try:
        kind = descriptor_pool.Default().FindMessageTypeByName(proposal.request.TypeName())
        return message_factory.GetMessageClass(kind).FromString(proposal.request.value)
    except (KeyError, DecodeError):
        text = f"this release of control does not know the request of {proposal.name} ({proposal.method})"
        raise Unknown(proposal.name, text) from None


def closed(
    name: str, state: proposals.ProposalState.ValueType, revision: int = 0, problem: str = ""
) -> events.ProposalClosed:
    return events.ProposalClosed(name=name, state=state, revision=revision, problem=problem)


def request_id_of(name: str) -> str:
    """The request id of the call that makes the approved change: the same for each control that may make the call."""
    return str(uuid.uuid5(REQUEST_IDS, name))


def fold_proposals(known: Proposals, event: events.Event) -> Proposals:
    """The proposals after an event: the very same value if the event does not change them."""
    match event.WhichOneof("payload"):
        case "approval_policy_set":
            return replace(known, policy=fold_policy(known.policy, event))
        case "change_proposed":
            proposal = event.change_proposed.proposal
            return replace(known, open={**known.open, proposal.name: proposal})
        case "proposal_approved":
            said = event.proposal_approved
            proposal = _decided(known.open[said.name], event)
            proposal.state, proposal.break_glass = proposals.PROPOSAL_STATE_APPROVED, said.break_glass
            return replace(known, open={**known.open, said.name: proposal})
        case "proposal_closed":
            end = event.proposal_closed
            before = known.open[end.name]
            proposal = before if before.decided_by else _decided(before, event)
            ended = proposals.Proposal()
            ended.CopyFrom(proposal)
            ended.state, ended.revision, ended.problem = end.state, end.revision, end.problem
            ended.ClearField("request")  # the event that began it has it for ever
            for line in ended.plan:
                line.ClearField("fixed")
            left = {name: each for name, each in known.open.items() if name != end.name}
            kept = {**known.ended, end.name: ended}
            return replace(known, open=left, ended=dict(islice(kept.items(), max(0, len(kept) - KEPT), None)))
        case _:
            return known


def _decided(before: proposals.Proposal, event: events.Event) -> proposals.Proposal:
    proposal = proposals.Proposal()
    proposal.CopyFrom(before)
    proposal.decided_by, proposal.decision_reason = event.actor, event.reason
    proposal.decide_time.CopyFrom(event.time)
    return proposal
