"""`meshctl proposals`: changes that wait for a second person, and the policy that says which."""

from __future__ import annotations

import uuid
from typing import Any

import click

from mesh import durations
from mesh.rpc import access, grants
from mesh.rpc import proposals as proposals_pb
from mesh.wording import approval_rule_text, change_kind_word, proposal_state_word, short
from meshctl.completions import cluster_names, proposal_ids, sidecar_names
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.output import age, as_dict, count, print_json, print_table
from meshctl.proposals import applied, fetched, resource, show_end
from meshctl.proposals import show as show_proposal
from meshctl.session import Group, Session, pass_session

KINDS = {
    change_kind_word(each).replace(" ", "-"): each
    for each in access.ChangeKind.values()
    if each not in (access.CHANGE_KIND_UNSPECIFIED, access.CHANGE_KIND_APPROVALS)
}
PROPOSAL = click.argument("proposal_id", metavar="ID", shell_complete=proposal_ids)
REASON = click.option("--reason", default="", help="Why, for the history.")


@click.group(cls=Group)
def proposals() -> None:
    """Changes that need a second person: list, show, approve, refuse, withdraw; and which changes need one.

    \b
    Examples:
      meshctl proposals list
      meshctl proposals show 3f9a1c02
      meshctl proposals approve 3f9a1c02 --reason "read the plan"
      meshctl proposals require rules topic-moves --topics pay-
    """


@proposals.command("list")
@click.option("--all", "with_ended", is_flag=True, help="Also the last that ended.")
@pass_session
def list_proposals(session: Session, with_ended: bool) -> None:
    """Show the changes that wait, newest first.

    \b
    Examples:
      meshctl proposals list --all
    """
    connection = session.connect()
    request = proposals_pb.ListProposalsRequest(open_only=not with_ended, page_size=PAGE_SIZE)
    found = [each for page in connection.pages(connection.approvals.ListProposals, request) for each in page.proposals]
    if session.as_json:
        print_json({"proposals": [as_dict(each) for each in found]})
        return
    print_table(
        ("ID", "STATE", "CHANGE", "BY", "SINCE", "REASON"),
        (
            (
                short(each.name), proposal_state_word(each.state), each.method, each.proposer, age(each.propose_time),
                each.reason,
            )
            for each in found
        ),
        empty="No change waits for a second person.",
    )  # fmt: skip


@proposals.command()
@PROPOSAL
@click.option("--wait", is_flag=True, help="Until it has ended, at most for --wait-for-approval seconds.")
@pass_session
def show(session: Session, proposal_id: str, wait: bool) -> None:
    """Show the plan of proposal ID, and what became of it.

    \b
    Examples:
      meshctl proposals show 3f9a1c02
      meshctl proposals show 3f9a1c02 --wait --wait-for-approval 3600
    """
    name = resource(proposal_id)
    if wait:
        applied(session, name)
        return
    proposal = fetched(session.connect(), name)
    if session.as_json:
        print_json(proposal)
    else:
        show_proposal(proposal)


@proposals.command()
@PROPOSAL
@REASON
@pass_session
def approve(session: Session, proposal_id: str, reason: str) -> None:
    """Make the change of another person: proposal ID.

    \b
    Examples:
      meshctl proposals approve 3f9a1c02 --reason "read the plan"
    """
    request = proposals_pb.ApproveProposalRequest(name=resource(proposal_id), reason=reason, request_id=_new_id())
    connection = session.connect()
    show_end(session, connection.call(connection.approvals.ApproveProposal, request))


@proposals.command()
@PROPOSAL
@REASON
@pass_session
def refuse(session: Session, proposal_id: str, reason: str) -> None:
    """End proposal ID of another person without the change.

    \b
    Examples:
      meshctl proposals refuse 3f9a1c02 --reason "not before the audit"
    """
    request = proposals_pb.RefuseProposalRequest(name=resource(proposal_id), reason=reason, request_id=_new_id())
    connection = session.connect()
    show_end(session, connection.call(connection.approvals.RefuseProposal, request))


@proposals.command()
@PROPOSAL
@REASON
@pass_session
def withdraw(session: Session, proposal_id: str, reason: str) -> None:
    """End your own proposal ID without the change.

    \b
    Examples:
      meshctl proposals withdraw 3f9a1c02
    """
    request = proposals_pb.WithdrawProposalRequest(name=resource(proposal_id), reason=reason, request_id=_new_id())
    connection = session.connect()
    show_end(session, connection.call(connection.approvals.WithdrawProposal, request))


@proposals.command()
@pass_session
def policy(session: Session) -> None:
    """Show which changes need a second person.

    \b
    Examples:
      meshctl proposals policy
    """
    known = _policy(session.connect())
    if session.as_json:
        print_json(known)
        return
    if not known.rules:
        click.echo("no change needs a second person; `meshctl proposals require` changes that")
        return
    for number, rule in enumerate(known.rules, start=1):
        click.echo(f"{number}. {approval_rule_text(rule)}")
    click.echo("and changes of roles and of this policy")
    click.echo(f"proposals expire after {durations.whole_s(known.expire_after) or 86_400} s")
    click.echo(f"programs {'may' if known.automations_may_approve else 'may not'} approve")
    if known.automations:
        click.echo(f"programs, beside those whose tokens say so: {', '.join(known.automations)}")


@proposals.command()
@click.argument("kinds", nargs=-1, type=click.Choice(list(KINDS)), metavar="[KIND]...")
@click.option("--clusters", multiple=True, metavar="CLUSTER", shell_complete=cluster_names, help="Only these clusters.")
@click.option("--topics", multiple=True, metavar="PREFIX", help="Only topics whose names begin with this.")
@click.option("--sidecars", multiple=True, metavar="SIDECAR", shell_complete=sidecar_names, help="Only these sidecars.")
@click.option("--expire-after", type=click.IntRange(60, 2_592_000), metavar="SECONDS", help="The life of a proposal.")
@click.option("--automation", "automations", multiple=True, metavar="PRINCIPAL", help="A principal that is a program.")
@click.option("--automations-may-approve/--people-approve", default=None, help="Whether programs may approve.")
@REASON
@pass_session
def require(session: Session, /, kinds: tuple[str, ...], reason: str, **options: Any) -> None:
    """Require a second person for changes of each KIND, in addition to what the policy has; of every kind without one.

    A change that names none of the things, and so may concern all of them, needs a second person, too.
    Changes of roles and of the policy need one as soon as the policy is on.

    \b
    Examples:
      meshctl proposals require rules topic-moves --topics pay- --reason "two pairs of eyes"
      meshctl proposals require cluster-removal --expire-after 3600
    """
    connection = session.connect()
    wanted = _policy(connection)
    rule = proposals_pb.ApprovalRule(kinds=[KINDS[each] for each in kinds])
    narrowing = grants.Narrowing(
        clusters=options["clusters"], topic_prefixes=options["topics"], sidecars=options["sidecars"]
    )
    if narrowing.ByteSize():
        rule.narrowing.CopyFrom(narrowing)
    if rule not in wanted.rules:
        wanted.rules.append(rule)
    if options["expire_after"]:
        wanted.expire_after.CopyFrom(durations.of_s(options["expire_after"]))
    wanted.automations.extend(each for each in options["automations"] if each not in wanted.automations)
    if options["automations_may_approve"] is not None:
        wanted.automations_may_approve = options["automations_may_approve"]
    _set(session, connection, wanted, reason)


@proposals.command()
@click.argument("numbers", nargs=-1, type=click.IntRange(1), metavar="[NUMBER]...")
@REASON
@pass_session
def drop(session: Session, numbers: tuple[int, ...], reason: str) -> None:
    """Drop rules of the policy by their NUMBERs in `meshctl proposals policy`; all without a number.

    \b
    Examples:
      meshctl proposals drop 2
    """
    connection = session.connect()
    wanted = _policy(connection)
    left = [rule for number, rule in enumerate(wanted.rules, start=1) if numbers and number not in numbers]
    beyond = [number for number in numbers if number > len(wanted.rules)]
    if beyond:
        raise click.UsageError(f"the policy has {count(len(wanted.rules), 'rule')}, and no rule {beyond[0]}")
    del wanted.rules[:]
    wanted.rules.extend(left)
    _set(session, connection, wanted, reason)


def _policy(connection: Connection) -> proposals_pb.ApprovalPolicy:
    return connection.call(connection.approvals.GetApprovalPolicy, proposals_pb.GetApprovalPolicyRequest())


def _set(session: Session, connection: Connection, wanted: proposals_pb.ApprovalPolicy, reason: str) -> None:
    request = proposals_pb.SetApprovalPolicyRequest(
        policy=wanted, expected_revision=wanted.revision, reason=reason, request_id=_new_id()
    )
    answer = connection.call(connection.approvals.SetApprovalPolicy, request)
    if session.as_json:
        print_json(answer)
        return
    rules = "; ".join(approval_rule_text(each) for each in wanted.rules) or "no changes"
    click.echo(f"a second person is needed for {rules} (revision {answer.revision})")


def _new_id() -> str:
    return str(uuid.uuid4())
