"""`meshctl quota`: how fast clients may produce, fetch, ask and connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from mesh.quotas.codec import entity_from_proto, entity_to_proto, key_from_proto, key_to_proto
from mesh.quotas.entity import DEFAULT, Entity, Key, Name
from mesh.quotas.words import change_text
from mesh.rpc import quotas as pb
from meshctl.output import as_dict, print_json, print_table
from meshctl.policy_calls import at_option, make_changes, pages, reason_option
from meshctl.session import Command, Group, Session, pass_session

_PARTS = (("user", "user"), ("client_id", "client"), ("ip", "ip"))
"""Part of an entity -> the beginning of its --...-defaults, as in kafka-configs.sh."""


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name an entity."""
    for option in reversed(
        (
            click.option(
                "--user",
                metavar="NAME",
                help="This user, without 'User:'. Group:NAME is a group, Prefixed:TEXT all users that begin so.",
            ),
            click.option("--user-defaults", is_flag=True, help="Each user without a quota of its own."),
            click.option("--client-id", metavar="NAME", help="Clients with this client.id."),
            click.option("--client-defaults", is_flag=True, help="Each client.id without a quota of its own."),
            click.option("--ip", metavar="ADDRESS", help="Clients at this IP address."),
            click.option("--ip-defaults", is_flag=True, help="Each IP address without a quota of its own."),
        )
    ):
        command = option(command)
    return command


def _entity(options: dict[str, Any], *, needed: bool = True) -> Entity:
    parts: list[Name | None] = []
    for part, beginning in _PARTS:
        name, by_default = options.pop(part), options.pop(f"{beginning}_defaults")
        if name is not None and by_default:
            raise click.UsageError(f"--{part.replace('_', '-')} and --{beginning}-defaults exclude each other")
        parts.append(DEFAULT if by_default else name)
    entity = Entity(*parts)
    if needed and entity == Entity():
        raise click.UsageError("name somebody: --user, --client-id, --ip, or one of --user-defaults, --client-defaults")
    return entity


@click.group(cls=Group)
def quota() -> None:
    """Quotas of clients over all gateways: set, remove, list, explain.

    Entities and keys are Kafka's. Gateways throttle a client that exceeds a quota, as brokers do.
    """


@quota.command(name="set", cls=Command)
@_entity_options
@click.option("--producer-byte-rate", type=float, metavar="BYTES", help="Bytes of Produce requests a second.")
@click.option("--consumer-byte-rate", type=float, metavar="BYTES", help="Bytes of Fetch answers a second.")
@click.option("--request-percentage", type=float, metavar="PERCENT", help="Time of the gateways, in % of a thread.")
@click.option("--connection-creation-rate", type=float, metavar="NUMBER", help="New connections a second.")
@reason_option
@pass_session
def set_(session: Session, /, reason: str, **options: Any) -> None:
    """Set quotas of a user, a client.id, both, or an IP address.

    \b
    Examples:
      meshctl quota set --user alice --producer-byte-rate 1048576 --consumer-byte-rate 2097152
      meshctl quota set --user-defaults --client-id batch --request-percentage 50 --reason "nights only"
      meshctl quota set --user Prefixed:nightly- --request-percentage 20
      meshctl quota set --ip-defaults --connection-creation-rate 20
    """
    entity = entity_to_proto(_entity(options))
    changes = [
        pb.QuotaChange(entity=entity, key=key_to_proto(key), value=options[key.value])
        for key in Key
        if options[key.value] is not None
    ]
    if not changes:
        raise click.UsageError(f"name a quota: {', '.join('--' + key.value.replace('_', '-') for key in Key)}")
    _change(session, changes, reason)


@quota.command(cls=Command)
@_entity_options
@click.option("--key", "keys", multiple=True, type=click.Choice([key.value for key in Key]), help="Only this one.")
@reason_option
@pass_session
def remove(session: Session, /, keys: tuple[str, ...], reason: str, **options: Any) -> None:
    """Remove the quotas of an entity; with --key, only these.

    \b
    Examples:
      meshctl quota remove --user alice
      meshctl quota remove --user alice --client-id batch --key producer_byte_rate
    """
    entity = entity_to_proto(_entity(options))
    numbers = {key_to_proto(Key(key)) for key in keys}
    found = [each for page in _pages(session, entity, 0) for each in page.quotas if not keys or each.key in numbers]
    if not found:
        if session.as_json:
            print_json({"changed": []})
        else:
            click.echo(f"{entity_from_proto(entity)} has no such quota: meshctl quota list shows all")
        return
    _change(session, [pb.QuotaChange(entity=each.entity, key=each.key) for each in found], reason)


@quota.command(name="list", cls=Command)
@_entity_options
@at_option
@pass_session
def list_(session: Session, /, at_revision: int | None, **options: Any) -> None:
    """List all quotas, or those of an entity.

    \b
    Examples:
      meshctl quota list
      meshctl quota list --user alice --at 120
    """
    entity = _entity(options, needed=False)
    found_pages = list(_pages(session, None if entity == Entity() else entity_to_proto(entity), at_revision or 0))
    found = [each for page in found_pages for each in page.quotas]
    if session.as_json:
        print_json({"revision": found_pages[0].revision, "quotas": [as_dict(each) for each in found]})
        return
    rows = ((str(entity_from_proto(each.entity)), key_from_proto(each.key), each.value) for each in found)
    print_table(
        ("OF", "QUOTA", "VALUE", "UNIT"),
        ((of, key.value, f"{value:.15g}", key.unit) for of, key, value in rows),
        empty="There is no quota: meshctl quota set",
    )


@quota.command(cls=Command)
@click.argument("user")
@click.option("--client-id", default="", metavar="NAME", help="The client.id.")
@click.option("--ip", default="", metavar="ADDRESS", help="The client's IP address.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="A group of the client's token.")
@at_option
@pass_session
def explain(
    session: Session, user: str, client_id: str, ip: str, groups: tuple[str, ...], at_revision: int | None
) -> None:
    """Say which quotas count for USER, and with whom the client shares each.

    \b
    Examples:
      meshctl quota explain alice
      meshctl quota explain alice --client-id batch --ip 10.0.0.1
    """
    request = pb.ExplainClientQuotasRequest(
        user=user, client_id=client_id, ip=ip, groups=groups, at_revision=at_revision or 0
    )
    connection = session.connect()
    answer = connection.call(connection.quotas.ExplainClientQuotas, request)
    if session.as_json:
        print_json(answer)
        return
    for each in answer.explanations or ("no quota counts for this client",):
        click.echo(each)


def _change(session: Session, changes: list[pb.QuotaChange], reason: str) -> None:
    request = pb.ChangeQuotasRequest(changes=changes)
    make_changes(session, session.connect().quotas.ChangeQuotas, request, change_text, "quota", reason)


def _pages(session: Session, entity: pb.QuotaEntity | None, at_revision: int) -> Iterable[pb.ListQuotasResponse]:
    request = pb.ListQuotasRequest(entity=entity, at_revision=at_revision)
    return pages(session, session.connect().quotas.ListQuotas, request)
