"""Changes that wait for a second person: the plan, the word of that person, and the policy that asks for it."""

from __future__ import annotations

import asyncio
from typing import Any

from mesh import durations
from mesh.rpc import proposals
from mesh.wording import approval_rule_text, proposal_state_word, short
from services.console import words
from services.console.asking import PAGE_SIZE, Ask, change, here
from services.console.control import Caller
from services.console.parts import Cell, Cells, Facts, Item, Moved, Notice, Page, Part, Table, Tone
from services.console.views.rules import CHANGE_TIMEOUT_S

COLUMNS = ("Proposal", "State", "Change", "By", "Since", "Why")
USUAL_EXPIRY_S = 86_400


async def listing(ask: Ask) -> Page:
    """Those that wait, then the last that ended; and the policy."""
    stubs = ask.caller.stubs
    request = proposals.ListProposalsRequest(page_size=PAGE_SIZE, page_token=ask.page_token)
    answer, policy = await asyncio.gather(
        ask.caller.call(stubs.approvals.ListProposals, request),
        ask.caller.call(stubs.approvals.GetApprovalPolicy, proposals.GetApprovalPolicyRequest()),
    )
    lead = f"{words.count(answer.open, 'change')} wait for a second person." if answer.open else "No change waits."
    parts: list[Part] = [
        Table(
            "Proposals", COLUMNS, [_row(each) for each in answer.proposals],
            "No change has been proposed.", more=ask.more(answer.next_page_token),
        ),
        _policy(policy),
    ]  # fmt: skip
    return Page("Proposals", parts, lead=lead, live="proposals")


def _row(of: proposals.Proposal) -> Cells:
    return [
        Cell(short(of.name), here(f"/proposals/{short(of.name)}")),
        _state(of),
        of.method,
        _proposer(of),
        words.age(of.propose_time),
        of.reason or words.NONE,
    ]


def _state(of: proposals.Proposal) -> Cell:
    if of.break_glass:
        return Cell(f"{proposal_state_word(of.state)}, in an emergency", tone=Tone.BAD)
    return words.toned(proposal_state_word(of.state))


def _proposer(of: proposals.Proposal) -> str:
    return f"{of.proposer} for {of.on_behalf_of}" if of.on_behalf_of else of.proposer


def _policy(policy: proposals.ApprovalPolicy) -> Part:
    if not policy.rules:
        return Notice("No change needs a second person: the policy of approvals is off.")
    rules: list[Cells] = [[approval_rule_text(each)] for each in policy.rules]
    rules.append(["changes of roles and of this policy"])
    note = (
        f"A proposal expires after {words.count(durations.whole_s(policy.expire_after) or USUAL_EXPIRY_S, 'second')}."
    )
    return Table("Changes that need a second person", ("Changes",), rules, "", note=note)


async def one(ask: Ask) -> Page:
    """The plan, and the forms for the second person."""
    request = proposals.GetProposalRequest(name=_name(ask))
    found: proposals.Proposal = await ask.caller.call(ask.caller.stubs.approvals.GetProposal, request)
    facts: list[Item] = [
        ("State", _state(found)),
        ("Change", found.method),
        ("By", f"{_proposer(found)}, {words.moment(found.propose_time)}"),
        ("Why", found.reason or words.NONE),
    ]
    if found.state == proposals.PROPOSAL_STATE_OPEN:
        facts.append(("Expires", words.moment(found.expire_time)))
    if found.decided_by:
        facts.append(("Decided by", f"{found.decided_by}, {words.moment(found.decide_time)}"))
        facts.append(("Their reason", found.decision_reason or words.NONE))
    if found.revision:
        facts.append(("Revision", Cell(f"{found.revision:,}", here(f"/changes/{found.revision}"))))
    parts: list[Part] = [Facts("Proposal", facts)]
    if found.problem:
        parts.append(Notice(found.problem, Tone.BAD))
    plan: list[Cells] = [[each.text] for each in found.plan]
    parts.append(Table(f"Plan, on revision {found.based_on:,}", ("Effect",), plan, "The plan has no facts."))
    is_open = found.state == proposals.PROPOSAL_STATE_OPEN
    if ask.may_change and is_open:
        path = f"/proposals/{short(found.name)}"
        parts += [
            change("Approve", f"{path}/approve", "Make the change"),
            change("Refuse", f"{path}/refuse", "End it without the change", tone=Tone.BAD),
            change("Withdraw your own", f"{path}/withdraw", "Take it back"),
        ]
    lead = "The change waits for a second person: not the proposer, and with the rights for the change."
    live = f"proposal/{short(found.name)}" if is_open else ""
    links = [Cell("All proposals", "/proposals")]
    return Page(f"Proposal {short(found.name)}", parts, lead=lead if is_open else "", links=links, live=live)


async def approve(ask: Ask) -> Moved:
    return await _decided(ask, ask.caller.stubs.approvals.ApproveProposal, proposals.ApproveProposalRequest)


async def refuse(ask: Ask) -> Moved:
    return await _decided(ask, ask.caller.stubs.approvals.RefuseProposal, proposals.RefuseProposalRequest)


async def withdraw(ask: Ask) -> Moved:
    return await _decided(ask, ask.caller.stubs.approvals.WithdrawProposal, proposals.WithdrawProposalRequest)


async def _decided(ask: Ask, method: Any, kind: Any) -> Moved:
    request = kind(name=_name(ask), reason=ask.said("reason"), request_id=ask.said("request_id"))
    await ask.caller.call(method, request, timeout_s=CHANGE_TIMEOUT_S)
    return Moved(here(f"/proposals/{ask.parameters['name']}"))


def _name(ask: Ask) -> str:
    return f"proposals/{ask.parameters['name']}"


async def waiting(caller: Caller) -> int:
    """How many changes wait, for the menu. CallError."""
    request = proposals.ListProposalsRequest(open_only=True, page_size=1)
    answer: proposals.ListProposalsResponse = await caller.call(caller.stubs.approvals.ListProposals, request)
    return answer.open
