"""ApprovalService: the policy of approvals, and the proposals that wait for a second person."""

from __future__ import annotations

from typing import Any

from mesh.rpc import proposals, proposals_grpc
from services.control.api import pages
from services.control.api.approval_gate import not_proved, person_of
from services.control.api.approved_calls import ApprovedCalls
from services.control.api.calls import caller, once_with_revision, present_introduction, time_left
from services.control.api.shapes import id_of
from services.control.decisions.answers import replayed, stored_response
from services.control.decisions.change_control.proposals import ProposalDecisions
from services.control.domain.change_control.proposals import PROPOSALS, Person
from services.control.store.drafts import Caller
from services.control.store.journal import AlreadyAnswered, Journal
from services.control.store.log import StoredAnswer


class ApprovalService(proposals_grpc.ApprovalServiceServicer):
    """See ApprovalService in proposals.proto."""

    def __init__(self, journal: Journal, decisions: ProposalDecisions, approved: ApprovedCalls) -> None:
        self._journal = journal
        self._decisions = decisions
        self._approved = approved

    async def GetApprovalPolicy(
        self, request: proposals.GetApprovalPolicyRequest, context: Any
    ) -> proposals.ApprovalPolicy:
        self._journal.require_loaded()
        return self._decisions.known.policy

    async def SetApprovalPolicy(
        self, request: proposals.SetApprovalPolicyRequest, context: Any
    ) -> proposals.SetApprovalPolicyResponse:
        self._journal.require_loaded()
        if not present_introduction().proposal:  # control has checked who proposed and who approved
            _present_person()
        who = caller(request, request.request_id, request.reason)
        return await once_with_revision(
            proposals.SetApprovalPolicyResponse,
            who,
            lambda answer: self._decisions.set_policy(request, who, answer),
        )

    async def ListProposals(
        self, request: proposals.ListProposalsRequest, context: Any
    ) -> proposals.ListProposalsResponse:
        self._journal.require_loaded()
        known = self._decisions.known
        waiting = known.waiting()
        found = list(reversed(waiting)) if request.open_only else list(known.newest_first())
        listing = pages.listing_of("proposals", request)
        start, size = pages.number_of(listing, request.page_token) or 0, pages.page_size(request.page_size)
        more = start + size < len(found)
        return proposals.ListProposalsResponse(
            proposals=map(_in_brief, found[start : start + size]),
            next_page_token=pages.token(listing, start + size) if more else "",
            open=len(waiting),
        )

    async def GetProposal(self, request: proposals.GetProposalRequest, context: Any) -> proposals.Proposal:
        self._journal.require_loaded()
        id_of(PROPOSALS, request.name)
        return self._decisions.known.get(request.name)

    async def ApproveProposal(self, request: proposals.ApproveProposalRequest, context: Any) -> proposals.Proposal:
        person, who = self._begun(request)
        try:
            revision = await self._decisions.approve(request.name, person, who, _answer(who), self._approved)
        except AlreadyAnswered as again:
            return self._again(request.name, again)
        await self._decisions.see_through(request.name, self._approved, time_left(), revision)
        return self._decisions.known.get(request.name)

    async def RefuseProposal(self, request: proposals.RefuseProposalRequest, context: Any) -> proposals.Proposal:
        _, who = self._begun(request)
        try:
            await self._decisions.refuse(request.name, who, _answer(who))
        except AlreadyAnswered as again:
            return self._again(request.name, again)
        return self._decisions.known.get(request.name)

    async def WithdrawProposal(self, request: proposals.WithdrawProposalRequest, context: Any) -> proposals.Proposal:
        person, who = self._begun(request, needs_rights=False)
        try:
            await self._decisions.withdraw(request.name, person, who, _answer(who))
        except AlreadyAnswered as again:
            return self._again(request.name, again)
        return self._decisions.known.get(request.name)

    def _begun(self, request: Any, *, needs_rights: bool = True) -> tuple[Person, Caller]:
        """The caller, who has proved a name. RpcError if the caller could not make the change alone."""
        self._journal.require_loaded()
        self._journal.require_leading()
        id_of(PROPOSALS, request.name)
        person = _present_person()
        proposal = self._decisions.known.get(request.name)
        principal = present_introduction().principal
        if needs_rights and principal is not None and proposal.HasField("request"):
            self._approved.check_rights(proposal, principal)
        return person, caller(request, request.request_id, request.reason)

    def _again(self, name: str, again: AlreadyAnswered) -> proposals.Proposal:
        """The proposal as it is now, for a request_id that was decided before."""
        return self._decisions.known.get(replayed(proposals.Proposal, again.answer).name or name)


def _present_person() -> Person:
    who = present_introduction()
    if who.principal is None:
        raise not_proved(who, "approvals are by people whom control knows")
    return person_of(who.principal, who.on_behalf_of)


def _answer(who: Caller) -> Any:
    def answer(name: str) -> StoredAnswer | None:
        return stored_response(who, proposals.Proposal(name=name))

    return answer


def _in_brief(proposal: proposals.Proposal) -> proposals.Proposal:
    brief = proposals.Proposal()
    brief.CopyFrom(proposal)
    for field in ("request", "plan", "plan_hash"):
        brief.ClearField(field)
    return brief
