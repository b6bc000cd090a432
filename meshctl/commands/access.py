"""`meshctl access`: who may do what."""

from __future__ import annotations

import uuid

import click

from mesh.rpc import access as access_pb
from mesh.rpc import grants
from mesh.rpc.roles import PEOPLE, narrowing_text, role_and_bounds, role_word
from meshctl.completions import cluster_names, sidecar_names
from meshctl.connection import PAGE_SIZE
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session

ROLES = {role_word(each): each for each in PEOPLE}
ROLE = click.Choice(list(ROLES))
ORIGINS = {
    grants.GRANT_SOURCE_SETTING: "control's setting first_admins",
    grants.GRANT_SOURCE_CERTIFICATE: "its certificate",
}


@click.group(cls=Group)
def access() -> None:
    """Roles of people and programs: grant, revoke, list, explain.

    A PRINCIPAL is the name in a certificate or token; group:NAME stands for all with a token of that group.
    """


@access.command()
@click.argument("principal")
@click.argument("role", type=ROLE)
@click.option("--clusters", multiple=True, metavar="CLUSTER", shell_complete=cluster_names, help="Only these clusters.")
@click.option("--topics", multiple=True, metavar="PREFIX", help="Only topics whose names begin with this.")
@click.option("--sidecars", multiple=True, metavar="SIDECAR", shell_complete=sidecar_names, help="Only these sidecars.")
@click.option("--also", is_flag=True, help="Keep the principal's other grants of this role.")
@click.option("--for-others", is_flag=True, help="The principal may call on behalf of others.")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def grant(
    session: Session,
    principal: str,
    role: str,
    clusters: tuple[str, ...],
    topics: tuple[str, ...],
    sidecars: tuple[str, ...],
    also: bool,
    for_others: bool,
    reason: str,
) -> None:
    """Grant ROLE to PRINCIPAL, instead of what it had of this role.

    \b
    Examples:
      meshctl access grant ada viewer
      meshctl access grant ada operator --topics shop. --clusters c1 --clusters c2
      meshctl access grant group:platform admin --reason "on call"
    """
    wanted = grants.Grant(principal=principal, role=ROLES[role], on_behalf_of_others=for_others)
    if clusters or topics or sidecars:
        wanted.narrowing.CopyFrom(grants.Narrowing(clusters=clusters, topic_prefixes=topics, sidecars=sidecars))
    request = grants.GrantRoleRequest(grant=wanted, in_addition=also, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.access.GrantRole, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"{principal} is {role_and_bounds(wanted)} (revision {answer.revision})")


@access.command()
@click.argument("principal")
@click.argument("role", type=ROLE, required=False)
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def revoke(session: Session, principal: str, role: str | None, reason: str) -> None:
    """Take ROLE from PRINCIPAL; without ROLE all rights, also those by a certificate and by groups.

    \b
    Examples:
      meshctl access revoke ada operator
      meshctl access revoke ada --reason "the laptop is gone"
    """
    wanted = ROLES[role] if role else access_pb.ROLE_UNSPECIFIED
    request = grants.RevokeRoleRequest(principal=principal, role=wanted, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.access.RevokeRole, request)
    if session.as_json:
        print_json(answer)
    elif answer.revision:
        what = f"is {role} no more" if role else "has no rights any more"
        click.echo(f"{principal} {what} (revision {answer.revision})")
    else:
        click.echo(f"{principal} has no rights already")


@access.command()
@click.argument("revision", type=click.IntRange(min=1))
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def revert(session: Session, revision: int, reason: str) -> None:
    """Make the grants of REVISION those in force again, as a new decision.

    \b
    Examples:
      meshctl access list --at 120            what they were
      meshctl access revert 120
    """
    request = grants.RevertGrantsRequest(to_revision=revision, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.access.RevertGrants, request)
    if session.as_json:
        print_json(answer)
        return
    done = f"the grants of revision {revision} are back (revision {answer.revision})"
    click.echo(done if answer.revision else f"the grants are those of revision {revision} already")


@access.command(name="list")
@click.argument("principal", required=False, default="")
@click.option("--at", "at_revision", type=click.IntRange(min=1), metavar="REVISION", help="As they were then.")
@pass_session
def list_(session: Session, principal: str, at_revision: int | None) -> None:
    """List the grants of all, or of PRINCIPAL."""
    request = grants.ListGrantsRequest(principal=principal, at_revision=at_revision or 0, page_size=PAGE_SIZE)
    connection = session.connect()
    pages = list(connection.pages(connection.access.ListGrants, request))
    found = [each for page in pages for each in page.grants]
    without = list(dict.fromkeys(name for page in pages for name in page.without_rights))
    if session.as_json:
        print_json({"grants": [as_dict(each) for each in found], "without_rights": without})
        return
    print_table(
        ("PRINCIPAL", "ROLE", "ONLY", "FOR OTHERS", "SINCE", "BY", "REASON"),
        (
            (
                each.principal, role_word(each.role), narrowing_text(each.narrowing) or "-",
                "yes" if each.on_behalf_of_others else "-", moment(each.time) if each.revision else "-",
                ORIGINS.get(each.source, each.actor), each.reason,
            )
            for each in found
        ),
        empty="Nothing was granted: the roles in certificates count.",
    )  # fmt: skip
    for name in without:
        click.echo(f"{name} has no rights: a decision has taken them")


@access.command()
@click.argument("principal")
@click.argument("method")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group in the token of PRINCIPAL.")
@click.option("--certificate", type=ROLE, help="The role in the certificate of PRINCIPAL.")
@click.option("--cluster", "clusters", multiple=True, metavar="CLUSTER", help="A cluster that the call names.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="A topic that the call names.")
@click.option("--sidecar", "sidecars", multiple=True, metavar="SIDECAR", help="A sidecar that the call names.")
@pass_session
def explain(
    session: Session,
    principal: str,
    method: str,
    groups: tuple[str, ...],
    certificate: str | None,
    clusters: tuple[str, ...],
    topics: tuple[str, ...],
    sidecars: tuple[str, ...],
) -> None:
    """Say whether PRINCIPAL may call METHOD, and which grant decides.

    \b
    Examples:
      meshctl access explain ada RuleService/SetRule
      meshctl access explain ada RuleService/SetRule --topic shop.orders --cluster c1
      meshctl access explain vera RuleService/ListRules --certificate viewer
    """
    request = grants.ExplainAccessRequest(
        principal=principal, groups=groups, method=method, clusters=clusters, topics=topics, sidecars=sidecars,
        certificate_role=ROLES[certificate] if certificate else access_pb.ROLE_UNSPECIFIED,
    )  # fmt: skip
    connection = session.connect()
    answer = connection.call(connection.access.ExplainAccess, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"{'allowed' if answer.allowed else 'refused'}: {answer.reason}")
    for tried in answer.tried if answer.allowed else ():
        click.echo(f"  not by {role_and_bounds(tried.grant)} of {tried.grant.principal}: {tried.reason}")
