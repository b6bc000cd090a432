"""Decides which calls wait for a second person. One place for all services, also for later ones.

The policy names kinds of changes, and `access.change` beside each method in the contract says the kind. A call that
needs a second person becomes a proposal, and is answered with its name. `approved_calls.py` makes the call later, with
the name of the proposal, and so it passes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from mesh.rpc import access, admin, proposals
from mesh.rpc.errors import denied
from mesh.rpc.method_access import PACKAGE, access_of
from mesh.rpc.principals import Principal
from mesh.wording import change_kind_word
from services.control.api.access_gate import AccessGate
from services.control.api.approval_plans import ApprovalPlans, Planned
from services.control.api.auditing import Introduction
from services.control.api.calls import caller, continues_as, present_introduction
from services.control.api.freeze_gate import only_checks, options_of
from services.control.api.named_things import NamedThings
from services.control.decisions.answers import replayed, stored_failure
from services.control.decisions.change_control.proposals import ProposalDecisions
from services.control.decisions.change_control.schedules import problem_of
from services.control.domain.change_control.approvals import asks, may_ask
from services.control.domain.change_control.proposals import Person, check_is_person
from services.control.domain.errors import NotAllowed
from services.control.store.drafts import Caller
from services.control.store.journal import AlreadyAnswered, Journal
from services.control.store.log import StoredAnswer
from services.control.store.reports import Reports

ADMIN = access.Access(roles=[access.ROLE_ADMIN])
"""The access that an emergency needs."""
M = TypeVar("M", bound=Message)
log = structlog.get_logger(__name__)


class ApprovalGate:
    """Asked by `Calls` in place of the call."""

    def __init__(
        self,
        journal: Journal,
        reports: Reports,
        access_gate: AccessGate,
        decisions: ProposalDecisions,
        plans: ApprovalPlans,
    ) -> None:
        self._journal = journal
        self._reports = reports
        self._access = access_gate
        self._decisions = decisions
        self._plans = plans

    async def made(self, method: str, behaviour: Callable[..., Awaitable[M]], request: Message, context: Any) -> M:
        """The answer of a call that needs nobody else. NotAllowed with the name of a proposal for any other call."""
        who, kind = present_introduction(), access_of(method).change
        if who.proposal or not self._asks(who, kind, request):
            return await behaviour(request, context)
        try:
            await self._journal.check_new(_caller_of(request))
            return await self._guarded(method, behaviour, request, context)
        except AlreadyAnswered as again:  # answered here: an order that is given again may go on
            answer: M = replayed(_kind_of_answer(method), again.answer)
            return answer

    async def _guarded(self, method: str, behaviour: Callable[..., Awaitable[M]], request: Message, context: Any) -> M:
        """As `made`, for a call that needs a second person and was not answered before."""
        who, kind = present_introduction(), access_of(method).change
        if who.principal is None:
            raise not_proved(who, f"{change_kind_word(kind)} need a second person")
        if has_secrets(request) and not who.break_glass:
            raise NotAllowed(
                "SECRETS_NOT_PROPOSED",
                method.removeprefix(PACKAGE),
                "the request holds secrets, which no proposal may keep: an admin can make the change in an emergency "
                "(break glass), or the policy of approvals leaves this kind of change out",
            )
        planned = await self._plans.of(request, behaviour)
        if planned.answer is not None:
            return planned.answer
        if who.break_glass:
            return await self._break_glass(method, behaviour, request, context, planned)
        raise await self._proposed(method, request, who, planned)

    def _asks(self, who: Introduction, kind: access.ChangeKind.ValueType, request: Message) -> bool:
        policy = self._journal.view.proposals.policy
        if not may_ask(policy, kind) or (who.principal is not None and who.principal.is_member):
            return False
        if only_checks(request):
            return False
        return asks(policy, kind, tuple(NamedThings(self._journal.view, self._reports.known.instances).of(request)))

    async def _proposed(self, method: str, request: Message, who: Introduction, planned: Planned[M]) -> NotAllowed:
        """The refusal that names the new proposal."""
        by = _caller_of(request)

        def refusal(name: str) -> NotAllowed:
            return NotAllowed(
                "NEEDS_APPROVAL",
                name,
                f"the change waits as {name} for a second person: `meshctl proposals approve {name.partition('/')[2]}`",
            )

        def answer(name: str) -> StoredAnswer | None:
            return stored_failure(by.request_id, by.digest, refusal(name)) if by.request_id else None

        proposal = self._proposal(method, request, who)
        return refusal(await self._decisions.propose(proposal, planned.plan, by, answer))

    async def _break_glass(
        self, method: str, behaviour: Callable[..., Awaitable[M]], request: Message, context: Any, planned: Planned[M]
    ) -> M:
        """Makes the call at once. The emergency is in the log before the change is."""
        who = present_introduction()
        assert who.principal is not None  # checked above
        person, policy = person_of(who.principal, who.on_behalf_of), self._journal.view.proposals.policy
        if person.on_behalf_of:
            raise NotAllowed("NOT_IN_PERSON", "mesh", f"{person.name} declares an emergency on behalf of another")
        check_is_person(policy, "mesh", person)
        if not self._access.allows(who.principal, "break glass", ADMIN):
            raise denied(f"an emergency (break glass) is for admins of the whole mesh; {person.name} is none")
        proposal = self._proposal(method, request, who)
        name = await self._decisions.break_glass(
            proposal, planned.plan, Caller(who.actor, who.break_glass, who.trace_id)
        )
        log.warning("an admin has made a change without a second person", proposal=name, actor=who.actor)
        continues_as(replace(who, proposal=name))
        try:
            answer = await behaviour(request, context)
        except Exception as error:
            await self._decisions.failed(name, problem_of(name, error))
            raise
        await self._decisions.applied(name, int(getattr(answer, "revision", 0)))
        return answer

    def _proposal(self, method: str, request: Message, who: Introduction) -> proposals.Proposal:
        assert who.principal is not None  # checked by `made`
        proposal = proposals.Proposal(
            method=method.removeprefix(PACKAGE),
            kind=access_of(method).change,
            proposer=who.principal.name,
            on_behalf_of=who.on_behalf_of,
            reason=options_of(request).reason,
            based_on=self._journal.view.position,
            trace_id=who.trace_id,
        )
        proposal.request.Pack(_kept(request), deterministic=True)
        return proposal


def _caller_of(request: Message) -> Caller:
    options = options_of(request)
    return caller(request, options.request_id, options.reason)


def _kind_of_answer(method: str) -> type[Any]:
    found = descriptor_pool.Default().FindMethodByName(method.removeprefix("/").replace("/", "."))
    return message_factory.GetMessageClass(found.output_type)


def person_of(principal: Principal, on_behalf_of: str) -> Person:
    return Person(principal.name, on_behalf_of, principal.is_automation)


def not_proved(who: Introduction, why: str) -> NotAllowed:
    """The refusal of a call that counts only if its caller has proved a name."""
    return NotAllowed(
        "NOT_PROVED",
        "mesh",
        f"{why}, and {who.actor} has proved no name in this call: call with a certificate or a token; a change that "
        "was scheduled before the policy of approvals has to be scheduled anew",
    )


def has_secrets(request: Message) -> bool:
    return any(field.GetOptions().Extensions[access.secret] for field, _ in request.ListFields())


def _kept(request: Message) -> Message:
    """The request as a proposal keeps it: without secrets, and without what is only about the call of the proposer."""
    kept = type(request)()
    kept.CopyFrom(request)
    for field, _ in request.ListFields():
        if field.GetOptions().Extensions[access.secret]:
            kept.ClearField(field.name)
    options = options_of(kept)
    options.ClearField("request_id")
    if isinstance(options, admin.ChangeOptions):
        options.ClearField("expected_revision")  # from here on, the plan must not differ
        options.ClearField("wait_for")
    return kept
