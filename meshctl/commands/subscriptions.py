"""`meshctl sidecars subscriptions`: what sidecars read for their backends, declared by operators."""

from __future__ import annotations

import uuid
from typing import Any

import click
from google.protobuf.descriptor import FieldDescriptor

from mesh.rpc import subscriptions as rpc
from mesh.wording import word
from meshctl.completions import sidecar_names
from meshctl.failures import ExitCode, MeshctlError
from meshctl.output import as_dict, moment, print_json, print_table
from meshctl.session import Group, Session, pass_session

MEMBERS = {
    field.name: field
    for field in rpc.SubscriptionSpec.DESCRIPTOR.fields
    if not field.is_repeated and field.name not in ("topic_pattern",)
}
"""Members that have one value."""
INTEGERS, BOOLEANS = (FieldDescriptor.TYPE_INT32,), (FieldDescriptor.TYPE_BOOL,)
TRUTHS = {"true": True, "false": False}


@click.group(cls=Group)
def subscriptions() -> None:
    """Subscriptions of sidecars: declare one, withdraw it, list what runs where.

    A sidecar that comes later gets them too, and keeps them over restarts without control.

    \b
    Examples:
      meshctl sidecars subscriptions add orders --sidecar 'shop-*' --topic orders --group shop --path /orders
      meshctl sidecars subscriptions list
      meshctl sidecars subscriptions remove orders
    """


def _routes(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> list[rpc.SubscriptionRoute]:
    routes = []
    for each in given:
        when, arrow, path = each.rpartition("->")
        if not arrow or not when.strip() or not path.strip():
            raise click.BadParameter(f"{each!r} is no 'CEL -> PATH', like \"value.total > 1000 -> /large\"")
        routes.append(rpc.SubscriptionRoute(when=when.strip(), path=path.strip()))
    return routes


@subscriptions.command()
@click.argument("name")
@click.option(
    "--sidecar", "sidecars", multiple=True, required=True, metavar="SIDECAR", shell_complete=sidecar_names,
    help="A sidecar that runs it; 'shop-*' for all whose names begin with shop-. May be repeated.",
)  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="T", help="Read this topic; may be repeated.")
@click.option("--topic-pattern", default="", metavar="REGEX", help="Read all topics whose whole name matches, instead.")
@click.option("--group", metavar="GROUP", help="Consumer group.")
@click.option("--path", metavar="PATH", help="The backend's path for records.")
@click.option("--key-format", metavar="FORMAT", help="binary, json, avro, jsonschema, protobuf, string or auto.")
@click.option("--value-format", metavar="FORMAT", help="The same for values.")
@click.option("--filter", metavar="CEL", help="Only records for which it is true.")
@click.option("--route", "routes", multiple=True, callback=_routes, metavar="'CEL -> PATH'", help="May be repeated.")
@click.option("--reply-topic", "reply_topics", multiple=True, metavar="T", help="For exactly_once; may be repeated.")
@click.option(
    "--set", "members", multiple=True, metavar="MEMBER=VALUE",
    help="Any other member, as the setting SUBSCRIPTIONS has it: maxRetries=7 or max_retries=7.",
)  # fmt: skip
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def add(
    session: Session, /, name: str, sidecars: tuple[str, ...], topics: tuple[str, ...], topic_pattern: str,
    routes: list[rpc.SubscriptionRoute], reply_topics: tuple[str, ...], members: tuple[str, ...], reason: str,
    **given: Any,
) -> None:  # fmt: skip
    """Declare a subscription, or replace the one of this NAME. Members left out are as the sidecar's settings.

    \b
    Examples:
      meshctl sidecars subscriptions add orders --sidecar shop-1 --sidecar shop-2 --topic orders --group shop
      meshctl sidecars subscriptions add prices --sidecar 'shop-*' --topic-pattern 'prices\\..*' --path /prices \\
          --set maxRetries=7 --set whenExhausted=drop --reason 'prices go to the shop'
    """
    spec = rpc.SubscriptionSpec(
        topics=topics, topic_pattern=topic_pattern, routes=routes, reply_topics=reply_topics,
        **{member: value for member, value in given.items() if value is not None},
    )  # fmt: skip
    for each in members:
        _set(spec, each)
    wanted = rpc.DeclaredSubscription(name=name, sidecars=sidecars, spec=spec)
    request = rpc.DeclareSubscriptionRequest(subscription=wanted, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.subscriptions.DeclareSubscription, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"subscription {name} is declared for {', '.join(sidecars)} (revision {answer.revision})")


@subscriptions.command()
@click.argument("name")
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def remove(session: Session, name: str, reason: str) -> None:
    """Withdraw a subscription. Its sidecars finish the records on their way, commit, and leave the group.

    \b
    Example:
      meshctl sidecars subscriptions remove orders --reason 'another service takes them'
    """
    request = rpc.WithdrawSubscriptionRequest(name=f"subscriptions/{name}", reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.subscriptions.WithdrawSubscription, request)
    if session.as_json:
        print_json(answer)
        return
    click.echo(f"subscription {name} is withdrawn (revision {answer.revision})")


@subscriptions.command()
@click.argument("revision", type=click.IntRange(min=1))
@click.option("--reason", default="", help="Why, for the history.")
@pass_session
def revert(session: Session, revision: int, reason: str) -> None:
    """Make the declared subscriptions of REVISION those in force again, as a new decision.

    \b
    Example:
      meshctl sidecars subscriptions revert 120
    """
    request = rpc.RevertSubscriptionsRequest(to_revision=revision, reason=reason, request_id=str(uuid.uuid4()))
    connection = session.connect()
    answer = connection.call(connection.subscriptions.RevertSubscriptions, request)
    if session.as_json:
        print_json(answer)
        return
    done = f"the subscriptions of revision {revision} are back (revision {answer.revision})"
    click.echo(done if answer.revision else f"the subscriptions are those of revision {revision} already")


@subscriptions.command(name="list")
@click.argument("sidecar", required=False, default="", shell_complete=sidecar_names)
@pass_session
def list_(session: Session, sidecar: str) -> None:
    """Show declared subscriptions, and how each sidecar, or SIDECAR alone, runs them; and those of other sources.

    \b
    Examples:
      meshctl sidecars subscriptions list
      meshctl sidecars subscriptions list shop-1 -o json
    """
    pages = _pages(session, sidecar)
    declared = [each for page in pages for each in page.subscriptions]
    reports = [each for page in pages for each in page.reports]
    if session.as_json:
        silent = [name for page in pages for name in page.silent_sidecars]
        print_json(
            {
                "subscriptions": [as_dict(each) for each in declared],
                "reports": [as_dict(each) for each in reports],
                "silent_sidecars": silent,
            }
        )
        return
    print_table(
        ("SUBSCRIPTION", "FOR", "READS", "GROUP", "SINCE", "BY", "REASON"),
        (
            (
                each.name, ", ".join(each.sidecars), each.spec.topic_pattern or ", ".join(each.spec.topics),
                each.spec.group or "-", moment(each.time), each.actor, each.reason,
            )
            for each in declared
        ),
        empty="No subscription is declared.",
    )  # fmt: skip
    if reports:
        click.echo()
        print_table(
            ("SIDECAR", "SUBSCRIPTION", "DECLARED BY", "STATE", "CONSUMER", "PROBLEM"),
            ((each.sidecar, each.name or "-", *_said(each)) for each in reports),
            empty="",
        )
    for page in pages:
        if page.reports_left_out:
            click.echo(f"and {page.reports_left_out} more reports: name a sidecar to see all of its subscriptions")


@subscriptions.command()
@click.argument("name")
@pass_session
def explain(session: Session, name: str) -> None:
    """Say who declared a subscription, and why each sidecar runs it, or does not.

    \b
    Example:
      meshctl sidecars subscriptions explain orders
    """
    pages = _pages(session, "")
    declared = next((each for page in pages for each in page.subscriptions if each.name == name), None)
    reports = [each for page in pages for each in page.reports if each.name == name]
    if declared is None and not reports:
        raise MeshctlError(f"nobody has declared a subscription {name!r}", ExitCode.NOT_FOUND, status="NOT_FOUND")
    if session.as_json:
        print_json(
            {
                "subscription": None if declared is None else as_dict(declared),
                "reports": [as_dict(each) for each in reports],
            }
        )
        return
    if declared is None:
        click.echo(f"control has declared no subscription {name}")
    else:
        why = f": {declared.reason}" if declared.reason else ""
        click.echo(
            f"subscription {name} is declared for {', '.join(declared.sidecars)} by {declared.actor}, "
            f"{moment(declared.time)} (revision {declared.revision}){why}"
        )
    for each in reports:
        source, state, _, problem = _said(each)
        old = ""
        if declared is not None and source == "control" and each.revision < declared.revision:
            old = f", as of revision {each.revision}"
        click.echo(f"  {each.sidecar}: {state}, by {source}{old}{f': {problem}' if problem else ''}")
    if declared is not None and not reports:
        click.echo("  no sidecar that control hears has it")


def _pages(session: Session, sidecar: str) -> list[rpc.ListSubscriptionsResponse]:
    connection = session.connect()
    request = rpc.ListSubscriptionsRequest(sidecar=sidecar)
    return list(connection.pages(connection.subscriptions.ListSubscriptions, request))


def _said(report: rpc.SubscriptionReport) -> tuple[str, str, str, str]:
    source, state = word(rpc.SubscriptionSource, report.source), word(rpc.SubscriptionState, report.state)
    return source, state, report.instance.removeprefix("instances/") or "-", report.problem


def _set(spec: rpc.SubscriptionSpec, said: str) -> None:
    given, separator, value = said.partition("=")
    name = "".join(f"_{each.lower()}" if each.isupper() else each for each in given)
    if not separator or name not in MEMBERS:
        raise click.UsageError(f"--set {said!r} is no MEMBER=VALUE; members are {', '.join(sorted(MEMBERS))}")
    field = MEMBERS[name]
    try:
        if field.type in INTEGERS:
            setattr(spec, name, int(value))
        elif field.type in BOOLEANS:
            setattr(spec, name, TRUTHS[value.lower()])
        else:
            setattr(spec, name, value)
    except (ValueError, KeyError):
        wanted = "a number" if field.type in INTEGERS else "true or false"
        raise click.UsageError(f"--set {said!r}: {given} is {wanted}") from None
