"""`meshctl tenants`: clients that have a namespace of their own."""

from __future__ import annotations

import click

from mesh.rpc import tenants as pb
from mesh.tenants.words import change_text, tenant_text
from meshctl.output import print_json
from meshctl.policy_calls import at_option, make_changes, pages, reason_option, show_list
from meshctl.session import Command, Group, Session, pass_session


@click.group(cls=Group)
def tenants() -> None:
    """Tenants, who have a namespace of their own: set, remove, list, explain.

    Gateways put the tenant's prefix before each name that its clients use, and take the prefix off in each answer.
    Nothing that has another name exists for a tenant.
    """


@tenants.command(name="set", cls=Command)
@click.argument("tenant_id", metavar="TENANT")
@click.option("--prefix", default="", metavar="PREFIX", help="Before the full names.  [default: TENANT and a dot]")
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="PRINCIPAL",
    help="User:NAME, or Group:NAME for a group of tokens. Several times for several.",
)
@click.option(
    "--shared-topic", "shared", multiple=True, metavar="TOPIC", help="The tenant reads this topic by its full name."
)
@click.option(
    "--writable-topic",
    "writable",
    multiple=True,
    metavar="TOPIC",
    help="The tenant reads and writes this topic.",
)
@reason_option
@pass_session
def set_(
    session: Session,
    tenant_id: str,
    prefix: str,
    members: tuple[str, ...],
    shared: tuple[str, ...],
    writable: tuple[str, ...],
    reason: str,
) -> None:
    """Set TENANT: all its members, and all topics that it shares.

    A tenant that is there is replaced, and keeps its prefix.

    \b
    Examples:
      meshctl tenants set shop --member User:shop --member Group:shop-services
      meshctl tenants set shop --member User:shop --shared-topic currencies --writable-topic events
    """
    both = sorted(set(shared) & set(writable))
    if both:
        raise click.UsageError(f"{both[0]!r}: say either --shared-topic or --writable-topic")
    topics = [*((each, False) for each in dict.fromkeys(shared)), *((each, True) for each in dict.fromkeys(writable))]
    tenant = pb.Tenant(
        tenant_id=tenant_id,
        prefix=prefix or _prefix_of(session, tenant_id),
        members=dict.fromkeys(members),
        shared_topics=[pb.SharedTopic(topic=topic, writable=may_write) for topic, may_write in topics],
    )
    _change(session, pb.TenantChange(tenant_id=tenant_id, tenant=tenant), reason)


@tenants.command(cls=Command)
@click.argument("tenant_id", metavar="TENANT")
@reason_option
@pass_session
def remove(session: Session, tenant_id: str, reason: str) -> None:
    """Remove TENANT. Its topics and groups stay; its clients see the whole virtual cluster from then on.

    \b
    Examples:
      meshctl tenants remove shop --reason "moved to a mesh of its own"
    """
    _change(session, pb.TenantChange(tenant_id=tenant_id), reason)


@tenants.command(name="list", cls=Command)
@at_option
@pass_session
def list_(session: Session, at_revision: int | None) -> None:
    """List all tenants.

    \b
    Examples:
      meshctl tenants list
      meshctl tenants list --at 120
    """
    request = pb.ListTenantsRequest(at_revision=at_revision or 0)
    empty = "There is no tenant: meshctl tenants set"
    show_list(session, session.connect().tenants.ListTenants, request, "tenants", tenant_text, empty)


@tenants.command(cls=Command)
@click.argument("principal")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Group:NAME, a group of the client's token.")
@click.option("--topic", default="", metavar="TOPIC", help="A name that the client uses for a topic.")
@at_option
@pass_session
def explain(session: Session, principal: str, groups: tuple[str, ...], topic: str, at_revision: int | None) -> None:
    """Say to which tenant PRINCIPAL belongs, and the full name of TOPIC.

    \b
    Examples:
      meshctl tenants explain User:shop
      meshctl tenants explain User:ann --group Group:shop-services --topic orders
    """
    request = pb.ExplainTenantRequest(principal=principal, groups=groups, topic=topic, at_revision=at_revision or 0)
    connection = session.connect()
    answer = connection.call(connection.tenants.ExplainTenant, request)
    if session.as_json:
        print_json(answer)
        return
    if answer.HasField("tenant"):
        click.echo(f"{principal} belongs to tenant {answer.tenant.tenant_id}, by its member {answer.member}")
        click.echo(tenant_text(answer.tenant))
    else:
        click.echo(f"{principal} has no tenant, and sees all names as they are")
    if topic:
        click.echo(f"{topic} is {'the shared topic' if answer.shared else 'topic'} {answer.full_name}")


def _prefix_of(session: Session, tenant_id: str) -> str:
    """The prefix that the tenant has; empty for a new one."""
    found = pages(session, session.connect().tenants.ListTenants, pb.ListTenantsRequest())
    return next((each.prefix for page in found for each in page.tenants if each.tenant_id == tenant_id), "")


def _change(session: Session, change: pb.TenantChange, reason: str) -> None:
    request = pb.ChangeTenantsRequest(changes=[change])
    make_changes(session, session.connect().tenants.ChangeTenants, request, change_text, "tenant", reason)
