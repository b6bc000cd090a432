"""`meshctl listener`: listeners of gateways, while these run."""

from __future__ import annotations

import click

from mesh.listeners import MECHANISMS, Certificates, DecidedListener, Security
from mesh.listeners.codec import listener_to_proto
from mesh.listeners.words import change_text, listener_text, open_text
from mesh.rpc import listeners as pb
from meshctl.output import as_dict, print_json
from meshctl.policy_calls import at_option, make_changes, pages, reason_option
from meshctl.session import Command, Group, Session, pass_session

name_argument = click.argument("name", metavar="NAME")


@click.group(cls=Group)
def listener() -> None:
    """Listeners of gateways: set, close, remove, list, explain.

    A decision counts on all gateways that have the listener, in the place of their settings. Gateways carry it out
    while clients are connected.
    """


@listener.command(name="set", cls=Command)
@name_argument
@click.option(
    "--security",
    required=True,
    type=click.Choice([each.value for each in Security], case_sensitive=False),
    help="As security.protocol of clients.",
)
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice([each.value for each in MECHANISMS], case_sensitive=False),
    help="How clients log in. Several times for several.  [default: both of SCRAM]",
)
@click.option(
    "--certificates",
    type=click.Choice([each.value for each in Certificates]),
    default=Certificates.NONE.value,
    show_default=True,
    help="Whether clients show certificates, as ssl.client.auth of brokers.",
)
@click.option(
    "--mapping-rules",
    default="",
    metavar="RULES",
    help="From certificates to principals, as ssl.principal.mapping.rules of brokers.  [default: as in settings]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="The port on gateways whose settings lack the listener. Without it these do not open it.",
)
@click.option(
    "--advertised",
    default="",
    metavar="HOST:PORT",
    help="The address that clients get; {host} is the gateway's own.  [default: as in settings, or {host}:PORT]",
)
@reason_option
@pass_session
def set_(
    session: Session,
    name: str,
    security: str,
    mechanisms: tuple[str, ...],
    certificates: str,
    mapping_rules: str,
    port: int | None,
    advertised: str,
    reason: str,
) -> None:
    """Set NAME: all of its policy, on every gateway that has it.

    Connections whose proof counts no more end at once. Those of a changed principal end within the drain time.

    \b
    Examples:
      meshctl listener set outside --security SASL_SSL --port 9094 --advertised kafka.example.com:9094
      meshctl listener set inside --security SSL --certificates required --mapping-rules 'RULE:^CN=(.*)$/$1/,DEFAULT'
    """
    decided = DecidedListener(
        name, Security(security), tuple(mechanisms), Certificates(certificates), mapping_rules, port or 0, advertised
    )
    _change(session, pb.ListenerChange(name=name, listener=listener_to_proto(decided)), reason)


@listener.command(cls=Command)
@name_argument
@reason_option
@pass_session
def close(session: Session, name: str, reason: str) -> None:
    """Close NAME on all gateways. Its connections end within their drain time.

    \b
    Examples:
      meshctl listener close plain --reason "all clients use outside"
    """
    _change(session, pb.ListenerChange(name=name, listener=listener_to_proto(DecidedListener(name))), reason)


@listener.command(cls=Command)
@name_argument
@reason_option
@pass_session
def remove(session: Session, name: str, reason: str) -> None:
    """Take back what was decided about NAME: gateways open what their settings say, if they have it.

    \b
    Examples:
      meshctl listener remove plain
    """
    _change(session, pb.ListenerChange(name=name), reason)


@listener.command(name="list", cls=Command)
@at_option
@pass_session
def list_(session: Session, at_revision: int | None) -> None:
    """List what was decided, and the listeners of each connected gateway.

    \b
    Examples:
      meshctl listener list
      meshctl listener list --at 120
    """
    _show(
        session, pb.ListListenersRequest(at_revision=at_revision or 0), "Nothing is decided: settings of gateways count"
    )


@listener.command(cls=Command)
@name_argument
@pass_session
def explain(session: Session, name: str) -> None:
    """Say what was decided about NAME, and how it is on each connected gateway.

    \b
    Examples:
      meshctl listener explain outside
    """
    nothing = f"Nothing is decided about {name}: settings of gateways count"
    _show(session, pb.ListListenersRequest(listener=name), nothing)


def _show(session: Session, request: pb.ListListenersRequest, nothing: str) -> None:
    found = list(pages(session, session.connect().listeners.ListListeners, request))
    decided = [each for page in found for each in page.listeners]
    gateways = [each for page in found for each in page.gateways]
    if session.as_json:
        both = {"listeners": [as_dict(each) for each in decided], "gateways": [as_dict(each) for each in gateways]}
        print_json({"revision": found[0].revision, **both})
        return
    for line in map(listener_text, decided) if decided else (nothing,):
        click.echo(line)
    for each in gateways:
        click.echo(f"{each.gateway}: {open_text(each.listener)}")


def _change(session: Session, change: pb.ListenerChange, reason: str) -> None:
    request = pb.ChangeListenersRequest(changes=[change])
    make_changes(session, session.connect().listeners.ChangeListeners, request, change_text, "listener", reason)
