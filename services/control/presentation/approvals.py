"""The policy of approvals, and the course of proposals, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mesh.rpc import events, proposals
from mesh.rpc.roles import narrowing_text
from services.control.domain.change_control.approvals import kind_word
from services.control.domain.change_control.proposals import WORDS


def policy_set(event: events.Event) -> Iterator[str]:
    policy = event.approval_policy_set.policy
    if not policy.rules:
        yield "no change needs a second person any more"
    for rule in policy.rules:
        yield f"{rule_text(rule)} need a second person"
    if policy.expire_after_s:
        yield f"proposals expire after {policy.expire_after_s} s"
    if policy.automations:
        yield f"programs are {', '.join(policy.automations)}"
    if policy.automations_may_approve:
        yield "programs may approve"


def rule_text(rule: proposals.ApprovalRule) -> str:
    """ "changes of rules and acls for topics pay-*"."""
    kinds = f"changes of {', '.join(map(kind_word, rule.kinds))}" if rule.kinds else "all changes"
    return " ".join(part for part in (kinds, narrowing_text(rule.narrowing)) if part)


def _proposed(event: events.Event) -> str:
    proposal = event.change_proposed.proposal
    return f"proposal {short(proposal.name)}: {proposal.method}"


def _approved(event: events.Event) -> str:
    said = event.proposal_approved
    how = "is made without a second person, in an emergency" if said.break_glass else "is approved"
    return f"proposal {short(said.name)} {how}"


def _closed(event: events.Event) -> str:
    end = event.proposal_closed
    more = f"revision {end.revision}" if end.revision else end.problem
    how = WORDS.get(end.state, "ended in a way that this release does not know")
    return f"proposal {short(end.name)} is {how}{': ' if more else ''}{more}"


def short(name: str) -> str:
    return name.partition("/")[2]


SENTENCES: dict[str, Callable[[events.Event], str]] = {
    "change_proposed": _proposed,
    "proposal_approved": _approved,
    "proposal_closed": _closed,
}
"""Payload -> its only sentence."""
