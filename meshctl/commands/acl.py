"""`meshctl acl`: what clients may do with topics, groups and the mesh."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click

from mesh.acls.words import acl_text, mode_word, operation_word, resource_word
from mesh.rpc import acls as pb
from meshctl.acls import FILTER_PATTERNS, MODE_NUMBERS, OPERATION, PATTERNS, RESOURCE, Named, Resource, named_options
from meshctl.commands.acl_dry_run import dry_run_options, show_dry_run, with_acls, without_acls
from meshctl.commands.acl_refusals import refusals
from meshctl.connection import PAGE_SIZE
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict, count, print_json, print_table
from meshctl.policy_calls import at_option, reason_option
from meshctl.session import Command, Group, Session, pass_session


@click.group(cls=Group)
def acl() -> None:
    """ACLs of clients, one policy over all clusters: add, remove, list, mode, explain.

    Options are those of kafka-acls.sh where it has the same. Names are those that clients use.
    """


@acl.command(cls=Command)
@named_options(PATTERNS, "literal")
@dry_run_options
@reason_option
@pass_session
def add(session: Session, /, dry_run: bool, since: datetime | None, reason: str, **options: Any) -> None:
    """Add ACLs: each principal with each operation, resource and host. Without --operation, all operations.

    \b
    Examples:
      meshctl acl add --allow-principal User:alice --operation Read --topic orders --group shop
      meshctl acl add --allow-principal User:alice --operation Write --topic shop- --pattern prefixed --host 10.0.0.1
      meshctl acl add --deny-principal 'User:*' --operation Delete --topic '*' --reason "nobody deletes topics"
    """
    request = pb.CreateAclsRequest(acls=Named.of(options).to_add(), reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    request.validate_only = dry_run
    answer = connection.call(connection.acls.CreateAcls, request)
    if dry_run:
        policy = connection.acl_policy()
        show_dry_run(session, since, policy, with_acls(policy, answer.created), whole=False)
        return
    if session.as_json:
        print_json(answer)
        return
    for each in answer.created:
        click.echo(f"+ {acl_text(each)}")
    there = len(request.acls) - len(answer.created)
    before = f"; {count(there, 'ACL')} was there before" if there else ""
    click.echo(f"{count(len(answer.created), 'ACL')} added (revision {answer.revision}){before}")


@acl.command(cls=Command)
@named_options(FILTER_PATTERNS, "any")
@click.option("--yes", is_flag=True, help="Ask no question.")
@click.option("--force", is_flag=True, help="Remove also the last ACL that allows, in mode enforce.")
@dry_run_options
@reason_option
@pass_session
def remove(
    session: Session,
    /,
    yes: bool,
    force: bool,
    dry_run: bool,
    since: datetime | None,
    reason: str,
    **options: Any,
) -> None:
    """Remove the ACLs that have all that is named. Without --yes, the command shows them and asks first.

    \b
    Examples:
      meshctl acl remove --allow-principal User:alice
      meshctl acl remove --topic shop- --pattern prefixed --operation Write --yes
    """
    filters = Named.of(options).filters()
    if filters == [_nothing()]:
        raise click.UsageError("name something: a principal, a resource, an operation or a host")
    if dry_run:
        policy = session.connect().acl_policy()
        gone = [each for wanted in filters for each in _found(session, wanted, 0)]
        show_dry_run(session, since, policy, without_acls(policy, gone), whole=False)
        return
    if session.as_json and not yes:
        raise click.UsageError("nobody is asked with -o json: say --yes")
    connection = session.connect()
    if not yes:
        found = list({acl_text(each): each for wanted in filters for each in _found(session, wanted, 0)})
        for text in found:
            click.echo(f"- {text}", err=True)
        if not found:
            click.echo("no ACL is like that: meshctl acl list shows all")
            return
        if not click.confirm(f"Remove {count(len(found), 'ACL')}?", err=True):
            raise MeshctlError("nothing was done", ExitCode.REFUSED, status="CANCELLED")
    request = pb.DeleteAclsRequest(filters=filters, force=force, reason=reason, request_id=str(uuid.uuid4()))
    answer = connection.call(connection.acls.DeleteAcls, request)
    if session.as_json:
        print_json(answer)
        return
    for each in answer.deleted:
        click.echo(f"- {acl_text(each)}")
    click.echo(f"{count(len(answer.deleted), 'ACL')} removed (revision {answer.revision})")


@acl.command(name="list", cls=Command)
@named_options(FILTER_PATTERNS, "any")
@at_option
@pass_session
def list_(session: Session, /, at_revision: int | None, **options: Any) -> None:
    """List the ACLs that have all that is named. With --pattern match: those that count for a name.

    \b
    Examples:
      meshctl acl list
      meshctl acl list --topic shop-orders --pattern match
      meshctl acl list --allow-principal User:alice --at 120
    """
    pages = [page for wanted in Named.of(options).filters() for page in _pages(session, wanted, at_revision or 0)]
    found = list({each.SerializeToString(): each for page in pages for each in page.acls}.values())
    first = pages[0]
    if session.as_json:
        shown: dict[str, Any] = {"mode": mode_word(first.mode), "super_users": list(first.super_users)}
        print_json({**shown, "revision": first.revision, "acls": [as_dict(each) for each in found]})
        return
    _show(found)
    click.echo(_policy(first))


@acl.command(cls=Command)
@click.argument("mode", required=False, type=click.Choice(list(MODE_NUMBERS)))
@click.option("--super-user", "super_users", multiple=True, metavar="PRINCIPAL", help="All super users from now on.")
@click.option("--no-super-users", is_flag=True, help="Nobody is a super user from now on.")
@click.option("--force", is_flag=True, help="Enforce also a policy that refuses every client.")
@dry_run_options
@reason_option
@pass_session
def mode(
    session: Session,
    mode: str | None,
    super_users: tuple[str, ...],
    no_super_users: bool,
    force: bool,
    dry_run: bool,
    since: datetime | None,
    reason: str,
) -> None:
    """Set the MODE of the ACLs, or their super users; without both, show them.

    \b
    off      no ACL counts
    observe  gateways count and audit what they would refuse
    enforce  gateways refuse what no ACL allows, and what an ACL denies

    \b
    Examples:
      meshctl acl mode observe --super-user User:root
      meshctl acl mode enforce --dry-run             who would have been refused in the last 24 hours
      meshctl acl mode enforce --reason "two quiet weeks"
    """
    if super_users and no_super_users:
        raise click.UsageError("--super-user and --no-super-users exclude each other")
    connection = session.connect()
    if dry_run:
        policy = connection.acl_policy()
        after = pb.AclPolicy(acls=policy.acls, super_users=policy.super_users)
        if super_users or no_super_users:
            after.super_users[:] = super_users
        show_dry_run(session, since, policy, after, whole=True)
        return
    if mode is not None or super_users or no_super_users:
        given = pb.AclSuperUsers(principals=super_users) if super_users or no_super_users else None
        request = pb.SetAclModeRequest(
            mode=MODE_NUMBERS[mode] if mode else pb.ACL_MODE_UNSPECIFIED, super_users=given, force=force,
            reason=reason, request_id=str(uuid.uuid4()),
        )  # fmt: skip
        connection.call(connection.acls.SetAclMode, request)
    known = connection.call(connection.acls.ListAcls, pb.ListAclsRequest(page_size=1))
    if session.as_json:
        shown: dict[str, Any] = {"mode": mode_word(known.mode), "super_users": list(known.super_users)}
        print_json({**shown, "revision": known.revision})
        return
    click.echo(_policy(known))


@acl.command(cls=Command)
@click.argument("principal")
@click.argument("operation", type=OPERATION)
@click.argument("resource", type=RESOURCE)
@click.option("--host", default="", metavar="ADDRESS", help="The client's IP address.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group of the client, without 'Group:'.")
@at_option
@pass_session
def explain(
    session: Session,
    principal: str,
    operation: pb.AclOperation.ValueType,
    resource: Resource,
    host: str,
    groups: tuple[str, ...],
    at_revision: int | None,
) -> None:
    """Say whether PRINCIPAL may do OPERATION on RESOURCE, which ACL decides, and what the client hears.

    RESOURCE is TYPE:NAME, such as topic:orders, group:shop or transactional-id:pay; or cluster.

    \b
    Examples:
      meshctl acl explain User:alice Read topic:orders
      meshctl acl explain User:alice Create cluster --host 10.0.0.1
    """
    request = pb.ExplainClientAccessRequest(
        principal=principal, more_principals=[f"Group:{each}" for each in groups], host=host, operation=operation,
        resource_type=resource[0], resource_name=resource[1], at_revision=at_revision or 0,
    )  # fmt: skip
    connection = session.connect()
    answer = connection.call(connection.acls.ExplainClientAccess, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(answer.explanation)
    if answer.client_message:
        click.echo(f"the client hears: {answer.client_message}")
    for cluster in answer.clusters:
        click.echo(cluster.explanation)


def _pages(session: Session, wanted: pb.AclFilter, at_revision: int) -> Iterable[pb.ListAclsResponse]:
    connection = session.connect()
    request = pb.ListAclsRequest(filter=wanted, at_revision=at_revision, page_size=PAGE_SIZE)
    return connection.pages(connection.acls.ListAcls, request)


def _found(session: Session, wanted: pb.AclFilter, at_revision: int) -> Iterable[pb.Acl]:
    return (each for page in _pages(session, wanted, at_revision) for each in page.acls)


def _show(found: Iterable[pb.Acl]) -> None:
    print_table(
        ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"),
        (
            (
                resource_word(each.resource_type), each.resource_name,
                "prefixed" if each.pattern_type == pb.ACL_PATTERN_TYPE_PREFIXED else "literal", each.principal,
                each.host, operation_word(each.operation),
                "deny" if each.permission == pb.ACL_PERMISSION_DENY else "allow",
            )
            for each in found
        ),
        empty="There is no such ACL: meshctl acl add",
    )  # fmt: skip


def _policy(known: pb.ListAclsResponse) -> str:
    who = ", ".join(known.super_users) or "none"
    return f"mode {mode_word(known.mode)}; super users: {who} (revision {known.revision})"


def _nothing() -> pb.AclFilter:
    [empty] = Named((), (), (), (), (), None).filters()
    return empty


acl.add_command(refusals)
