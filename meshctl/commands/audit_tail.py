"""`meshctl audit tail`: what becomes of records, as it happens, from the audit topics of all clusters."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from mesh.rpc import audit
from meshctl.moments import Since
from meshctl.output import moment, print_json
from meshctl.record_events import record_events
from meshctl.session import Command, Session, pass_session

TYPES = ("PRODUCER", "REACTIVE_CONSUMER", "ACTIVE_CONSUMER", "STREAMING_CONSUMER", "STREAMING_PRODUCER")


@click.command(cls=Command)
@click.option("--topic", default="", help="Only records of this topic.")
@click.option("--correlation-id", default="", metavar="ID", help="Only records with this X-Correlation-Id.")
@click.option("--traceability-id", default="", metavar="ID", help="Only records with this X-Traceability-Id.")
@click.option("--trace-id", default="", metavar="ID", help="Only records of this W3C trace.")
@click.option("--key", default="", help="Only records with this key.")
@click.option("--service", "service_id", default="", metavar="NAME", help="Only what this sidecar says.")
@click.option(
    "--status", type=click.Choice(["SUCCESS", "FAILURE"], case_sensitive=False), default=None, help="Only this outcome."
)
@click.option("--type", "type_", type=click.Choice(TYPES, case_sensitive=False), default=None, help="Whose records.")
@click.option("--since", type=Since(), metavar="WHEN", help="Begin there: 10m, 2h (ago), or a time in RFC 3339.")
@click.option("-n", "--count", "number", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--no-follow", is_flag=True, help="Stop when all that is there has been shown.")
@pass_session
def tail(
    session: Session,
    topic: str,
    correlation_id: str,
    traceability_id: str,
    trace_id: str,
    key: str,
    service_id: str,
    status: str | None,
    type_: str | None,
    since: datetime | None,
    number: int | None,
    no_follow: bool,
) -> None:
    """Show what becomes of records, until Ctrl-C. With -o json one event a line.

    Sidecars tell it (audit_target: topic); control reads it from Kafka. A cluster that is away is named on standard
    error, and the others go on. When control goes away, tail waits for it and goes on where it was.

    \b
    Examples:
      meshctl audit tail --status FAILURE                     what fails, as it fails
      meshctl audit tail --correlation-id 5Cl --since 1h      what became of one record
      meshctl audit tail --topic orders --no-follow --since 2026-05-01T02:00:00Z -o json
    """
    request = audit.TailAuditRequest(
        topic=topic,
        correlation_id=correlation_id,
        traceability_id=traceability_id,
        trace_id=trace_id,
        key=key,
        service_id=service_id,
        audit_status=(status or "").upper(),
        audit_type=(type_ or "").upper(),
        stop_at_end=no_follow,
    )
    if since is not None:
        request.start_time.FromDatetime(since.astimezone(UTC))
    try:
        for shown, event in enumerate(record_events(session.connect(), request), start=1):
            if session.as_json:
                print_json(event, one_line=True)
            else:
                click.echo(_line(event))
            if shown == number:
                return
    except KeyboardInterrupt:
        return


def _line(event: audit.RecordAudit) -> str:
    place = f"{event.topic}-{event.partition}" if event.partition >= 0 else event.topic
    offset = f"@{event.offset}" if event.offset >= 0 else ""
    facts = {"key": event.key, "correlation": event.correlation_id, "trace": event.trace_id, "by": event.service_id}
    said = "  ".join(f"{name}={value}" for name, value in facts.items() if value)
    why = f"  {event.stacktrace.splitlines()[0]}" if event.stacktrace else ""
    return f"{moment(event.time)}  {event.audit_status}  {event.audit_type}  {place}{offset}  {said}{why}"
