"""Proposals for people, and the wait for the second person of a change."""

from __future__ import annotations

import time

import click

from mesh.rpc import proposals
from mesh.wording import proposal_state_word, short
from meshctl.connection import Connection
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import moment, print_json
from meshctl.session import Session

LOOK_EVERY = 1.0
"""Seconds between two questions to control."""
GOING_ON = (proposals.PROPOSAL_STATE_OPEN, proposals.PROPOSAL_STATE_APPROVED)


def resource(proposal_id: str) -> str:
    return proposal_id if proposal_id.startswith("proposals/") else f"proposals/{proposal_id}"


def fetched(connection: Connection, name: str) -> proposals.Proposal:
    return connection.call(connection.approvals.GetProposal, proposals.GetProposalRequest(name=name))


def applied(session: Session, name: str) -> None:
    """Returns when the change is made. MeshctlError if it ends otherwise, or the second person takes too long."""
    connection = session.connect()
    until = time.monotonic() + session.wait_for_approval
    click.echo(f"meshctl: waits for a second person: meshctl proposals approve {short(name)}", err=True)
    while True:
        proposal = fetched(connection, name)
        if proposal.state not in GOING_ON:
            show_end(session, proposal)
            return
        if time.monotonic() >= until:
            raise MeshctlError(
                f"{name} still waits for a second person after {session.wait_for_approval:g} s",
                ExitCode.NEEDS_APPROVAL,
                as_json=session.as_json,
                proposal=name,
            )
        time.sleep(min(LOOK_EVERY, max(0.0, until - time.monotonic())))


def show_end(session: Session, proposal: proposals.Proposal) -> None:
    """Says how a proposal stands. MeshctlError if its change was to be made, and is not."""
    if proposal.state == proposals.PROPOSAL_STATE_FAILED:
        raise MeshctlError(
            f"{proposal.name} was approved, and could not be made: {proposal.problem}",
            ExitCode.REFUSED,
            as_json=session.as_json,
        )
    if session.wait_for_approval and proposal.state not in (*GOING_ON, proposals.PROPOSAL_STATE_APPLIED):
        by = f" by {proposal.decided_by}: {proposal.decision_reason}" if proposal.decision_reason else ""
        text = f"{proposal.name} is {proposal_state_word(proposal.state)}{by}"
        raise MeshctlError(text, ExitCode.REFUSED, as_json=session.as_json)
    if session.as_json:
        print_json(proposal)
        return
    revision = f" (revision {proposal.revision})" if proposal.revision else ""
    click.echo(f"{short(proposal.name)} is {proposal_state_word(proposal.state)}{revision}")


def show(proposal: proposals.Proposal) -> None:
    """All that a second person has to know."""
    by = f"{proposal.proposer} for {proposal.on_behalf_of}" if proposal.on_behalf_of else proposal.proposer
    facts = (
        ("proposal", short(proposal.name)),
        ("state", proposal_state_word(proposal.state) + (", in an emergency" if proposal.break_glass else "")),
        ("change", proposal.method),
        ("by", f"{by}, {moment(proposal.propose_time)}"),
        ("reason", proposal.reason),
        ("expires", moment(proposal.expire_time) if proposal.state == proposals.PROPOSAL_STATE_OPEN else ""),
        ("decided by", f"{proposal.decided_by}, {moment(proposal.decide_time)}" if proposal.decided_by else ""),
        ("their reason", proposal.decision_reason),
        ("revision", str(proposal.revision or "")),
        ("problem", proposal.problem),
    )
    for name, text in facts:
        if text:
            click.echo(f"{name + ':':<14}{text}")
    click.echo(f"plan, on revision {proposal.based_on}:")
    for line in proposal.plan:
        click.echo(f"  {line.text}")
    if not proposal.plan:
        click.echo("  no facts")
