"""The policy of approvals, and the course of proposals, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mesh import durations
from mesh.rpc import events
from mesh.wording import approval_rule_text, proposal_state_word, short


def policy_set(event: events.Event) -> Iterator[str]:
    policy = event.approval_policy_set.policy
    if not policy.rules:
        yield "no change needs a second person any more"
    for rule in policy.rules:
        yield f"{approval_rule_text(rule)} need a second person"
    if durations.whole_s(policy.expire_after):
        yield f"proposals expire after {durations.whole_s(policy.expire_after)} s"
    if policy.automations:
        yield f"programs are {', '.join(policy.automations)}"
    if policy.automations_may_approve:
        yield "programs may approve"


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
    return f"proposal {short(end.name)} is {proposal_state_word(end.state)}{': ' if more else ''}{more}"


SENTENCES: dict[str, Callable[[events.Event], str]] = {
    "change_proposed": _proposed,
    "proposal_approved": _approved,
    "proposal_closed": _closed,
}
"""Payload -> its only sentence."""
