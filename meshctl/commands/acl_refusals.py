"""`meshctl acl refusals`: what gateways have refused a client, and why, from the audit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click

from mesh.rpc import audit
from meshctl.commands.audit_freshness import said
from meshctl.connection import PAGE_SIZE
from meshctl.moments import Since
from meshctl.output import as_dict, count, moment, print_json, print_table
from meshctl.session import Command, Session, pass_session

DEFAULT_COUNT: Final = 100


@click.command(cls=Command)
@click.option("--principal", default="", metavar="PRINCIPAL", help="Refusals of this client: User:NAME.")
@click.option("--topic", default="", help="Refusals about this topic.")
@click.option("--topic-prefix", default="", metavar="PREFIX", help="Refusals about topics that begin so.")
@click.option("--since", type=Since(), metavar="WHEN", help="Not before: 10m, 2h (ago), or a time in RFC 3339.")
@click.option("--until", type=Since(), metavar="WHEN", help="Before this.")
@click.option(
    "-n", "--count", "number", type=click.IntRange(min=1), default=DEFAULT_COUNT, show_default=True, help="At most."
)
@pass_session
def refusals(
    session: Session,
    principal: str,
    topic: str,
    topic_prefix: str,
    since: datetime | None,
    until: datetime | None,
    number: int,
) -> None:
    """Show what gateways have refused a client, and why; the newest first.

    ACLs refuse operations, rules of validation refuse batches and names of topics, rules of protection keep records
    from clients. Say --principal or --topic. Without --since, the last 24 hours are looked through.

    \b
    Examples:
      meshctl acl refusals --principal User:alice
      meshctl acl refusals --principal User:alice --since 7d --topic-prefix shop.
      meshctl acl refusals --topic orders --since 2h -o json
    """
    request = audit.ListRefusalsRequest(
        principal=principal, topic=topic, topic_prefix=topic_prefix, page_size=min(number + 1, PAGE_SIZE)
    )
    if since is not None:
        request.start_time.FromDatetime(since.astimezone(UTC))
    if until is not None:
        request.end_time.FromDatetime(until.astimezone(UTC))
    connection = session.connect()
    found: list[audit.Refusal] = []
    freshness = audit.AuditFreshness()
    for page in connection.pages(connection.audit.ListRefusals, request):
        found += page.refusals
        freshness = page.freshness
        if len(found) > number:
            break
    if session.as_json:
        shown = [as_dict(each) for each in found[:number]]
        print_json({"refusals": shown, "freshness": as_dict(freshness)})
        return
    print_table(
        ("TIME", "EFFECT", "BY", "PRINCIPAL", "TOPIC", "GATEWAY", "WHY"),
        (
            (
                moment(each.time), "refused" if each.enforced else "observed", each.audit_type.lower(), each.principal,
                each.topic or "-", each.gateway, each.reason,
            )
            for each in found[:number]
        ),
        empty="Nothing was refused, as far as the table of the audit knows.",
    )  # fmt: skip
    if len(found) > number:
        click.echo(f"There are more than {count(number, 'refusal')}: say -n, or until when with --until.", err=True)
    for sentence in said(freshness):
        click.echo(sentence, err=True)
