"""The audit events of records as a stream that goes on across broken connections, each event once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from mesh.rpc import audit
from meshctl.connection import Connection
from meshctl.reopening import reopened

REMEMBERED: Final = 10_000
"""Events whose repeats are not given: a stream that is opened again begins with some that were given already."""
OVERLAP: Final = timedelta(minutes=1)
"""The stream is opened again so long before the last event: other clusters may give theirs later."""


def record_events(connection: Connection, request: audit.TailAuditRequest) -> Iterator[audit.RecordAudit]:
    """Opens the stream again when it ends, from a little before the last event on; repeats are left out."""
    told: dict[str, str] = {}
    known: dict[str, None] = {}
    begin = request.start_time.ToDatetime(UTC) if request.HasField("start_time") else None
    last: datetime | None = None

    def opened() -> Iterator[audit.TailAuditResponse]:
        nonlocal begin
        if begin is None:
            begin = datetime.now(UTC)  # control begins with its own present
        elif last is None:
            request.start_time.FromDatetime(begin)
        else:  # the clock of whoever wrote the events may be behind
            request.start_time.FromDatetime(last if last < begin else max(begin, last - OVERLAP))
        return connection.tail(request)

    for each in reopened(opened, again=not request.stop_at_end):
        if each.HasField("source"):
            _tell(each.source, told)
        elif each.record.id not in known:
            known[each.record.id] = None
            if len(known) > REMEMBERED:
                del known[next(iter(known))]
            time = each.record.time.ToDatetime(UTC)
            last = time if last is None else max(last, time)
            yield each.record


def _tell(source: audit.AuditSource, told: dict[str, str]) -> None:
    """Prints the problem of a cluster, or its end, if that changed."""
    said = "" if source.topics else f"cluster {source.cluster_name!r} has no audit topic"
    said = f"{source.problem}; it is tried again" if source.problem else said
    before = told.get(source.cluster_name, "")
    if said != before:
        click.echo(said or f"cluster {source.cluster_name!r} is read again", err=True)
    told[source.cluster_name] = said
