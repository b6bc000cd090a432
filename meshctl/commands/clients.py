"""`meshctl clients`: who is connected, with which software and versions, and what each client does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from mesh.acls.codec import policy_from_proto
from mesh.rpc import clients as pb
from meshctl.acl_clients import COLUMNS, Broken, broken_by, document, limits, row
from meshctl.output import age, as_dict, count, print_json, print_table
from meshctl.session import Command, Session, pass_session
from meshctl.traffic import size

SHOWN_NAMES = 3
"""Topics and groups of one client in the table; the JSON has all."""


@click.command(cls=Command)
@click.option("--gateway", default="", metavar="NAME", help="Only clients of this gateway.")
@click.option("--principal", default="", metavar="NAME", help="Only who has logged in as this: User:alice.")
@click.option("--client-id", default="", metavar="ID", help="Only of this client.id.")
@click.option("--topic", default="", metavar="T", help="Only who produces to this topic, or consumes from it.")
@click.option("--group", default="", metavar="G", help="Only members of this group.")
@click.option("--with-errors", is_flag=True, help="Only who got an answer with an error code.")
@click.option("--removed-by", default="", metavar="RELEASE", help="Only who uses versions that this Kafka lacks: 4.0.")
@click.option(
    "--broken-by-acls", is_flag=True, help="Only who would be refused something if ACLs were enforced, and what."
)
@click.option("--apis", is_flag=True, help="A line for each API of a client: its versions, requests and errors.")
@pass_session
def clients(session: Session, /, apis: bool, broken_by_acls: bool, **wanted: str) -> None:
    """Show the clients that are connected: who they are, where, with what, and what they do.

    Connections of the same client are one line. Rates and counts are up to 9 s old, or older where a gateway has many
    clients. A gateway that has too many clients leaves out the idlest, and says how many.

    \b
    Examples:
      meshctl clients                                  who is connected, and what each produces to and consumes from
      meshctl clients --topic orders --apis            the versions that the clients of a topic use
      meshctl clients --removed-by 4.0 --apis          clients that cannot talk to brokers of Kafka 4.0 by themselves
      meshctl clients --with-errors -o json
      meshctl clients --broken-by-acls                 clients that `meshctl acl mode enforce` would break, and why
    """
    request = pb.ListClientsRequest(**wanted)  # type: ignore[arg-type]  # the options of this command
    connection = session.connect()
    answer = connection.all_clients(request)
    found, left_out = answer.clients, answer.left_out
    if broken_by_acls:
        policy = policy_from_proto(connection.acl_policy())
        show_broken(session, list(broken_by(found, policy, policy)), answer)
        return
    if session.as_json:
        print_json(as_dict(answer))
        return
    empty = "No client is like that."
    columns: tuple[str, ...]
    if apis:
        columns = ("CLIENT ID", "SOFTWARE", "GATEWAY", "API", "VERSIONS", "REQUESTS", "REMOVED IN", "ERRORS")
        print_table(columns, (row for each in found for row in _api_rows(each)), empty=empty)
    else:
        columns = (
            "CLIENT ID", "PRINCIPAL", "SOFTWARE", "FROM", "GATEWAY", "LISTENER", "CONNECTIONS", "SINCE",
            "REQUESTS/S", "IN/S", "OUT/S", "ERRORS", "PRODUCES TO", "CONSUMES FROM", "GROUPS",
        )  # fmt: skip
        print_table(columns, map(_row, found), empty=empty)
    for each in left_out:
        kinds = count(each.kinds, "client") if each.kinds else "clients"
        click.echo(
            f"{each.gateway} leaves out {kinds} with {count(each.connections, 'connection')}: the idlest", err=True
        )


def show_broken(session: Session, broken: Sequence[Broken], answer: pb.ListClientsResponse) -> None:
    """Shows what connected clients would be refused."""
    not_known = list(
        limits(addresses_hidden=answer.addresses_hidden, left_out=sum(each.kinds for each in answer.left_out))
    )
    if session.as_json:
        print_json({"broken": [document(each) for each in broken], "not_known": not_known})
        return
    print_table(COLUMNS, map(row, broken), empty="No connected client would be refused what it does.")
    for sentence in not_known:
        click.echo(f"note: {sentence}")


def _row(of: pb.Client) -> tuple[str, ...]:
    return (
        of.client_id or "-",
        of.principal or "-",
        of.software or "-",
        of.address or "-",
        of.gateway,
        of.listener or "-",
        str(of.connections),
        age(of.since_time),
        f"{of.rates.requests:.1f}",
        size(of.rates.bytes_in),
        size(of.rates.bytes_out),
        str(sum(error.answers for api in of.apis for error in api.errors)),
        _names(of.produces_to),
        _names(of.consumes_from),
        _names(of.groups),
    )


def _api_rows(of: pb.Client) -> Iterator[tuple[str, ...]]:
    for api in of.apis:
        low, high = api.lowest_version, api.highest_version
        errors = ", ".join(f"{each.error} {each.answers}" for each in api.errors)
        versions = str(low) if low == high else f"{low} to {high}"
        yield (
            of.client_id or "-", of.software or "-", of.gateway, api.api, versions, str(api.requests),
            api.removed_in or "-", errors or "-",
        )  # fmt: skip


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more or "-"
