"""Calls that a second person has approved: by the methods themselves, in the name of the proposer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from mesh.rpc import admin, proposals
from mesh.rpc.method_access import PACKAGE
from mesh.rpc.principals import Principal
from services.control.api.access_gate import AccessGate
from services.control.api.approval_plans import ApprovalPlans
from services.control.api.auditing import Introduction
from services.control.api.calls import Calls
from services.control.api.freeze_gate import FreezeGate, options_of
from services.control.domain.access.grants import stream_of
from services.control.domain.change_control.proposals import check_plan, request_id_of, request_of
from services.control.domain.errors import NotAllowed
from services.control.store.journal import Journal


class ApprovedCalls:
    """See `ApprovedCommands` in decisions/change_control/proposals.py."""

    def __init__(
        self, journal: Journal, calls: Calls, access: AccessGate, freeze: FreezeGate, plans: ApprovalPlans
    ) -> None:
        self._journal = journal
        self._calls = calls
        self._access = access
        self._freeze = freeze
        self._plans = plans
        self._services: dict[str, Any] = {}

    def serve(self, services: Iterable[Any]) -> None:
        """Names the services whose calls can be made."""
        self._services = {type(each).__name__: each for each in services}

    def check_rights(self, proposal: proposals.Proposal, principal: Principal) -> None:
        """RpcError if the principal could not make the change alone."""
        self._access.admit(principal, f"{PACKAGE}{proposal.method}", request_of(proposal))

    async def check(self, proposal: proposals.Proposal) -> int:
        """The revision of the rules now. Raises the error with which control would refuse the change now, also because
        its plan is another one.
        """
        if self._access.policy.is_shut_out(proposal.proposer):
            raise NotAllowed(
                "ACTOR_SHUT_OUT",
                stream_of(proposal.proposer),
                f"a decision has taken all rights from {proposal.proposer}, who proposed the change",
            )
        request, rules_revision = request_of(proposal), self._journal.view.rules_revision
        await self._freeze.admit(f"{PACKAGE}{proposal.method}", request)
        planned = await self._plans.of(request, self.method_of(proposal.method))
        check_plan(proposal, planned.plan)
        return rules_revision

    async def carry_out(self, proposal: proposals.Proposal, rules_revision: int) -> int:
        """Makes the call, once, however often it is made; the position of its decision.

        `rules_revision`: the rules on which the plan was checked, if this control has checked it.
        """
        request: Any = request_of(proposal)
        options = options_of(request)
        options.request_id = request_id_of(proposal.name)
        if isinstance(options, admin.ChangeOptions):
            options.expected_revision = rules_revision
        who = Introduction(
            proposal.proposer,
            proposal.name,
            proposal.trace_id,
            on_behalf_of=proposal.on_behalf_of,
            proposal=proposal.name,
        )
        method = self.method_of(proposal.method)
        answer: Message = await self._calls.make(f"{PACKAGE}{proposal.method}", method, request, who)
        return int(getattr(answer, "revision", 0))

    def method_of(self, name: str) -> Any:
        """The method of a service, as "AclService/CreateAcls"."""
        service, _, method = name.partition("/")
        return getattr(self._services[service], method)
