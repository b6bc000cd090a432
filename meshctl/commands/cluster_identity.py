"""`meshctl cluster identity`: as whom clients reach a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

import click

from mesh.rpc import admin, routing
from meshctl.cluster_properties import properties_of
from meshctl.completions import cluster_names
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import print_json, print_table
from meshctl.session import Group, Session, pass_session

MODES = {
    "mesh": routing.IDENTITY_MODE_MESH,
    "mapped": routing.IDENTITY_MODE_MAPPED,
    "passthrough": routing.IDENTITY_MODE_PASSTHROUGH,
    "exchange": routing.IDENTITY_MODE_EXCHANGE,
}
FALLBACKS = {"refuse": routing.IDENTITY_FALLBACK_REFUSE, "mesh": routing.IDENTITY_FALLBACK_MESH}
_MODE_WORDS = {value: word for word, value in MODES.items()}
_FALLBACK_WORDS = {value: word for word, value in FALLBACKS.items()}
PREFIX = "*"


@click.group(cls=Group)
def identity() -> None:
    """As whom clients reach a cluster: as the mesh, each by its credential, or by its own token."""


def _reason(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--reason", default="", help="Why, for the history.")(function)


def _named(function: Callable[..., None]) -> Callable[..., None]:
    return click.argument("name", shell_complete=cluster_names)(function)


@identity.command()
@_named
@pass_session
def show(session: Session, name: str) -> None:
    """Show as whom clients reach the cluster NAME. References are shown, no secrets."""
    found = _cluster(session, name)
    if session.as_json:
        print_json(found.identity)
        return
    _print(found)


@identity.command("set")
@_named
@click.argument("mode", type=click.Choice(tuple(MODES)))
@click.option(
    "--others",
    type=click.Choice(tuple(FALLBACKS)),
    help="Refuse clients without a credential or a token (as without this option), or take them for the mesh.",
)
@click.option("--audience", default="", help="exchange: the audience of the tokens; the issuer chooses without it.")
@click.option("--dry-run", is_flag=True, help="Check only.")
@_reason
@pass_session
def set_mode(
    session: Session, name: str, mode: str, others: str | None, audience: str, dry_run: bool, reason: str
) -> None:
    """Say as whom clients reach the cluster NAME. The credentials stay, unless MODE has no use for them.

    \b
    Examples:
      meshctl cluster identity set c1 mapped
      meshctl cluster identity set c1 mapped --others mesh
      meshctl cluster identity set c2 passthrough
      meshctl cluster identity set c3 exchange --audience c3
    """
    before = _cluster(session, name)
    wanted = routing.UpstreamIdentity(
        mode=MODES[mode],
        fallback=FALLBACKS[others] if others else before.identity.fallback,
        audience=audience,
    )
    if mode == "mapped":
        wanted.credentials.extend(before.identity.credentials)
    _decide(session, before, wanted, reason, dry_run=dry_run)


@identity.command("map")
@_named
@click.argument("principal")
@click.argument("properties", metavar="KEY=VALUE...", nargs=-1, required=True, callback=properties_of)
@click.option("--dry-run", is_flag=True, help="Check only.")
@_reason
@pass_session
def map_principal(
    session: Session, name: str, principal: str, properties: dict[str, str], dry_run: bool, reason: str
) -> None:
    """Give PRINCIPAL this credential at the cluster NAME, in the place of an earlier one.

    PRINCIPAL is User:alice, Group:billing (a group of a token), or User:billing-* for all that begin so. Secrets are
    references. The cluster's mode becomes mapped, if it is not yet.

    \b
    Examples:
      meshctl cluster identity map c1 User:alice sasl.username=alice \\
          'sasl.password=${file:/etc/kafka-mesh/secrets/c1-alice}'
      meshctl cluster identity map c1 'User:billing-*' sasl.username=billing \\
          'sasl.password=${env:KAFKA_MESH_SECRET_BILLING}'
    """
    before = _cluster(session, name)
    wanted = _mapped(before, without=principal)
    is_prefix = principal.endswith(PREFIX)
    who = {"principal_prefix": principal.removesuffix(PREFIX)} if is_prefix else {"principal": principal}
    wanted.credentials.append(routing.UpstreamCredential(**who, properties=properties))
    _decide(session, before, wanted, reason, dry_run=dry_run)


@identity.command()
@_named
@click.argument("principal")
@_reason
@pass_session
def unmap(session: Session, name: str, principal: str, reason: str) -> None:
    """Take the credential of PRINCIPAL at the cluster NAME away."""
    before = _cluster(session, name)
    wanted = _mapped(before, without=principal)
    if len(wanted.credentials) == len(before.identity.credentials):
        raise MeshctlError(f"{principal} has no credential at cluster {name}", ExitCode.NOT_FOUND)
    _decide(session, before, wanted, reason)


@identity.command()
@_named
@_reason
@pass_session
def clear(session: Session, name: str, reason: str) -> None:
    """Let all clients reach the cluster NAME as the mesh again. Its credentials are forgotten."""
    before = _cluster(session, name)
    _decide(session, before, routing.UpstreamIdentity(mode=routing.IDENTITY_MODE_MESH), reason)


@identity.command()
@_named
@click.argument("revision", type=click.IntRange(min=1))
@_reason
@pass_session
def revert(session: Session, name: str, revision: int, reason: str) -> None:
    """Bring back the identity that clients had at the cluster NAME at REVISION."""
    _decide(session, _cluster(session, name), revision, reason)


def _mapped(found: admin.Cluster, without: str) -> routing.UpstreamIdentity:
    return routing.UpstreamIdentity(
        mode=routing.IDENTITY_MODE_MAPPED,
        fallback=found.identity.fallback,
        credentials=[each for each in found.identity.credentials if _who(each) != without],
    )


def _cluster(session: Session, name: str) -> admin.Cluster:
    connection = session.connect()
    found: admin.Cluster = connection.call(
        connection.clusters.GetCluster, admin.GetClusterRequest(name=f"clusters/{name}")
    )
    return found


def _decide(
    session: Session,
    before: admin.Cluster,
    to: routing.UpstreamIdentity | int,
    reason: str,
    *,
    dry_run: bool = False,
) -> None:
    connection = session.connect()
    request = admin.SetClusterIdentityRequest(
        name=before.name,
        identity=to if isinstance(to, routing.UpstreamIdentity) else None,
        expected_revision=before.revision,
        validate_only=dry_run,
        request_id=str(uuid.uuid4()),
        reason=reason,
    )
    if isinstance(to, int):
        request.as_of_revision = to
    after = connection.call(connection.clusters.SetClusterIdentity, request)
    if session.as_json:
        print_json(after)
        return
    _print(after)
    if dry_run:
        click.echo("checked only, nothing was changed")
    elif after.revision == before.revision:
        click.echo("nothing to change")
    else:
        click.echo(f"set at revision {after.revision}")


def _print(found: admin.Cluster) -> None:
    identity = found.identity
    name, mode = found.spec.cluster_name, _MODE_WORDS.get(identity.mode, "mesh")
    if mode == "mesh":
        click.echo(f"all clients reach cluster {name} as the mesh")
        return
    others = "are refused" if _FALLBACK_WORDS.get(identity.fallback) != "mesh" else "reach it as the mesh"
    if mode == "exchange":
        audience = f" for the audience {identity.audience}" if identity.audience else ""
        click.echo(
            f"clients reach cluster {name} by tokens{audience} that its issuer gives for theirs; clients without one "
            f"{others}"
        )
        return
    if mode == "passthrough":
        click.echo(f"clients reach cluster {name} by their own tokens; clients without one {others}")
        return
    click.echo(f"clients reach cluster {name} by their credentials there; others {others}")
    print_table(
        ("PRINCIPAL", "CREDENTIAL"),
        ((_who(each), _properties_text(each)) for each in identity.credentials),
        empty="No principal has a credential yet. Give one: meshctl cluster identity map",
    )


def _who(credential: routing.UpstreamCredential) -> str:
    is_prefix = credential.WhichOneof("who") == "principal_prefix"
    return f"{credential.principal_prefix}{PREFIX}" if is_prefix else credential.principal


def _properties_text(credential: routing.UpstreamCredential) -> str:
    items: Iterable[tuple[str, str]] = sorted(credential.properties.items())
    return " ".join(f"{key}={value}" for key, value in items)
