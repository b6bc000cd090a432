"""`meshctl audit trail`: what became of records, from the table that a pipeline fills: a record's whole life."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from mesh.rpc import audit
from meshctl.commands.audit_freshness import said
from meshctl.commands.audit_tail import TYPES
from meshctl.connection import PAGE_SIZE, Connection
from meshctl.moments import Since
from meshctl.output import as_dict, count, moment, print_json, print_table
from meshctl.session import Command, Session, pass_session

DEFAULT_COUNT = 100


@click.command(cls=Command)
@click.option("--correlation-id", default="", metavar="ID", help="Records with this X-Correlation-Id.")
@click.option("--traceability-id", default="", metavar="ID", help="Records with this X-Traceability-Id.")
@click.option("--trace-id", default="", metavar="ID", help="Records of this W3C trace.")
@click.option("--event", "event_id", default="", metavar="ID", help="The audit event with this id.")
@click.option("--topic", default="", help="Records of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="A partition of that topic.")
@click.option("--offset", type=click.IntRange(min=0), help="An offset in that partition.")
@click.option(
    "--service",
    "service_id",
    default="",
    metavar="NAME",
    help="Only events of this sidecar or gateway, or of `control`.",
)
@click.option("--key", default="", help="Only records with this key.")
@click.option(
    "--status", type=click.Choice(["SUCCESS", "FAILURE"], case_sensitive=False), default=None, help="Only this outcome."
)
@click.option(
    "--type", "type_", type=click.Choice((*TYPES, "CONTROL"), case_sensitive=False), default=None, help="Whose records."
)
@click.option("--since", type=Since(), metavar="WHEN", help="Not before: 10m, 2h (ago), or a time in RFC 3339.")
@click.option("--until", "until", type=Since(), metavar="WHEN", help="Before this.")
@click.option(
    "-n", "--count", "number", type=click.IntRange(min=1), default=DEFAULT_COUNT, show_default=True, help="At most."
)
@pass_session
def trail(
    session: Session,
    correlation_id: str,
    traceability_id: str,
    trace_id: str,
    event_id: str,
    topic: str,
    partition: int | None,
    offset: int | None,
    service_id: str,
    key: str,
    status: str | None,
    type_: str | None,
    since: datetime | None,
    until: datetime | None,
    number: int,
) -> None:
    """Show what became of records, the oldest event first, from the table that a pipeline fills.

    Say at least one of --correlation-id, --traceability-id, --trace-id, --event, --topic or --service. An id finds a
    record however old it is; without one, the last 24 hours are looked through, or what --since says. How far the
    table is behind is said on standard error.

    \b
    Examples:
      meshctl audit trail --correlation-id 5Cl                      a record's whole life
      meshctl audit trail --topic orders --partition 0 --offset 7   the same, by its place
      meshctl audit trail --topic orders --status FAILURE --since 2h -o json
    """
    request = audit.QueryAuditRequest(
        correlation_id=correlation_id,
        traceability_id=traceability_id,
        trace_id=trace_id,
        event_id=event_id,
        topic=topic,
        partition=partition,
        offset=offset,
        service_id=service_id,
        key=key,
        audit_status=(status or "").upper(),
        audit_type=(type_ or "").upper(),
        page_size=min(number + 1, PAGE_SIZE),
    )
    if since is not None:
        request.start_time.FromDatetime(since.astimezone(UTC))
    if until is not None:
        request.end_time.FromDatetime(until.astimezone(UTC))
    events, freshness = _found(session.connect(), request, number + 1)
    shown = events[:number]
    if session.as_json:
        print_json({"events": [as_dict(each) for each in shown], "freshness": as_dict(freshness)})
        return
    print_table(
        ("TIME", "STATUS", "TYPE", "PLACE", "KEY", "CORRELATION", "TRACE", "BY", "WHY"),
        (
            (
                moment(each.time), each.audit_status, each.audit_type, _place(each), each.key or "-",
                each.correlation_id or "-", each.trace_id or "-", _teller(each), _why(each),
            )
            for each in shown
        ),
        empty="Nothing of that kind is in the table.",
    )  # fmt: skip
    if len(events) > number:
        click.echo(f"There are more than {count(number, 'event')}: say -n, or from when on with --since.", err=True)
    for sentence in said(freshness):
        click.echo(sentence, err=True)


def _found(
    connection: Connection, request: audit.QueryAuditRequest, number: int
) -> tuple[list[audit.RecordAudit], audit.AuditFreshness]:
    found: list[audit.RecordAudit] = []
    freshness = audit.AuditFreshness()
    for page in connection.pages(connection.audit.Query, request):
        found += page.events
        freshness = page.freshness
        if len(found) >= number:
            break
    return found, freshness


def _place(event: audit.RecordAudit) -> str:
    partition = f"-{event.partition}" if event.partition >= 0 else ""
    offset = f"@{event.offset}" if event.offset >= 0 else ""
    return f"{event.topic}{partition}{offset}" or "-"


def _teller(event: audit.RecordAudit) -> str:
    called = f" ({event.actor}: {event.method.rpartition('/')[2]})" if event.actor else ""
    return f"{event.service_id} on {event.cluster_name}{called}"


def _why(event: audit.RecordAudit) -> str:
    return event.stacktrace.splitlines()[0] if event.stacktrace else ""
