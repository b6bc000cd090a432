"""`meshctl audit export`: audit events for a SIEM, in OCSF, to standard output, a file or a receiver of syslog."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from meshctl.failures import ExitCode, MeshctlError
from meshctl.moments import Since
from meshctl.output import count
from meshctl.session import Command, Session, pass_session
from meshctl.siem import position as positions
from meshctl.siem.exporting import calls, carry, last_call, records, records_since
from meshctl.siem.position import Position, PositionError
from meshctl.siem.syslog import receiver_of
from meshctl.siem.targets import FileTarget, Lines, SyslogTarget, Target, TargetGoneError

STDOUT = "-"
KINDS = ("calls", "records")


@click.command(cls=Command)
@click.option("--to", "place", default=STDOUT, show_default=True, metavar="WHERE",
              help="- (standard output), a file, syslog+tls://HOST:PORT, syslog+tcp://…, syslog+udp://…")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["ocsf"]), default="ocsf", show_default=True, help="OCSF 1.7.0.")
@click.option("--only", type=click.Choice(KINDS), help="Only calls to control, or only the audit of records.")
@click.option("--since", type=Since(), metavar="WHEN", help="Begin there, not now: 10m, 2h, 7d (ago), or a time.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Keeps how far the export is; the next one goes on there.")  # fmt: skip
@click.option("--syslog-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="The authorities that sign the receiver's certificate; the system's otherwise.")  # fmt: skip
@pass_session
def export(
    session: Session,
    place: str,
    form: str,
    only: str | None,
    since: datetime | None,
    follow: bool,
    state: Path | None,
    syslog_ca: Path | None,
) -> None:
    """Export audit events for a SIEM: calls to control, and the audit of records.

    An event may come twice with the same metadata.uid, and none is left out while control and the audit topics keep it.
    Syslog acknowledges nothing: events that a receiver loses are lost.

    \b
    Examples:
      meshctl audit export --since 7d --to audit.jsonl
      meshctl audit export --follow --state export.json --to syslog+tls://siem.example.com:6514
      meshctl audit export --follow --state export.json | kafka-mesh produce siem-events
    """
    connection = session.connect()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a supervisor's stop keeps the position, too
    try:
        known = positions.read(state) if state is not None else None
        start = since.astimezone(UTC) if since is not None else None
        begun = known or Position(0 if start or not follow else last_call(connection))
        sources: list[Iterator[Any]] = []
        if only != "records":
            sources.append(calls(connection, begun, None if known else start, follow=follow))
        if only != "calls":
            first = start if follow or start else datetime.fromtimestamp(1, UTC)
            sources.append(records(connection, records_since(begun, first), follow=follow))
        target = _target(place, syslog_ca)
        try:
            carried = carry(
                sources, target, begun, lambda at: positions.write(state, at) if state else None, patient=follow
            )
        finally:
            target.close()
    except KeyboardInterrupt:
        return
    except (OSError, PositionError, TargetGoneError) as error:
        raise MeshctlError(f"{place}: {error}", ExitCode.REFUSED) from error
    finally:
        signal.signal(signal.SIGTERM, before)
    click.echo(f"{count(carried, 'event')} exported to {place}", err=True)


def _target(place: str, authorities: Path | None) -> Target:
    if place == STDOUT:
        return Lines()
    try:
        receiver = receiver_of(place)
    except ValueError as error:
        raise MeshctlError(f"--to: {error}", ExitCode.BAD_REQUEST) from error
    return FileTarget(Path(place)) if receiver is None else SyslogTarget(receiver, authorities)
