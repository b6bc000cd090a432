"""`kafka-mesh verify-log`: reads the whole log and says what does not follow from it, or was changed in it.

The database is seen as it is at one moment, in one read-only transaction: control may serve meanwhile. mesh.events is
read before that: the events there were in the log already.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import psycopg
from psycopg.rows import class_row, dict_row
from sqlalchemy import Table, make_url

from mesh.event_log import CONTROL, Chain, Signatures
from mesh.member_keys import MemberKeys
from mesh.settings import AddressList, load
from mesh.telemetry import configure_logging
from services.control.domain.past.snapshots import FORMAT, SnapshotError, view_from_bytes
from services.control.settings import ControlSettings
from services.control.store.database import CONNECT_TIMEOUT, KEEPALIVE
from services.control.store.verification import Difference, LogCheck, PublishedLog, StoredEvent, differing_rows
from services.control.upstream.published_records import UnreadError, published_records

MOST_SHOWN = 100
"""Differences that are shown one by one; one change may be the reason of many differences."""
ROWS_AT_ONCE = 1000
STATEMENT_TIMEOUT_MS = 300_000
"""For one page of the log, or for one whole projection."""
EXIT_DIFFERENT, EXIT_UNCHECKED = 1, 3
"""Exit code 2 says that the settings are wrong."""


class VerifySettings(ControlSettings, service="control"):
    """Recomputes what control keeps from its log and compares: the chain of hashes, each projection, snapshots, and
    mesh.events. Changes nothing; control may run meanwhile. Exits with 0 when all is well, 1 when something differs, 3
    when something could not be read. Takes control's settings.
    """

    home_bootstrap_servers: AddressList = ()
    """Needed for the comparison with mesh.events."""


@dataclass(slots=True)
class Report:
    """The numbers of what was compared, and the differences."""

    events: int = 0
    first_chained: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    snapshots: int = 0
    published: int | None = None
    differences: list[Difference] = field(default_factory=list)
    untold: int = 0
    """The number of differences beyond the first `MOST_SHOWN`."""

    def add(self, found: Iterable[Difference]) -> None:
        found = iter(found)
        self.differences.extend(islice(found, MOST_SHOWN - len(self.differences)))
        self.untold += sum(1 for _ in found)


class UncheckedError(RuntimeError):
    """Something could not be read, and why."""


def verify(settings: VerifySettings, *, with_kafka: bool) -> Report:
    """UncheckedError when the database, or the home cluster, does not answer."""
    report = Report()
    published = PublishedLog()
    if with_kafka:
        report.add(_read_topic(settings, published))
        report.published = published.position
    url = make_url(settings.database_url.get_secret_value())
    try:
        with _connected(settings) as connection:
            _verify_database(connection, report, published, _signatures(settings))
    except psycopg.Error as error:
        place = f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"
        reason = (str(error).strip().splitlines() or ["no answer"])[0]
        raise UncheckedError(f"the database {place} can't be read: {reason}") from None
    return report


def _connected(settings: VerifySettings) -> psycopg.Connection[tuple[Any, ...]]:
    url = make_url(settings.database_url.get_secret_value()).set(drivername="postgresql")
    connection = psycopg.connect(
        url.render_as_string(hide_password=False),
        connect_timeout=CONNECT_TIMEOUT,
        options=f"-c timezone=UTC -c statement_timeout={STATEMENT_TIMEOUT_MS}",
        application_name="kafka-mesh verify-log",
        **KEEPALIVE,  # type: ignore[arg-type]  # libpq's own parameters
    )
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


def _signatures(settings: VerifySettings) -> Signatures | None:
    return None if settings.rpc_tls is None else MemberKeys(settings.rpc_tls).signatures(CONTROL)


def _verify_database(
    connection: psycopg.Connection[Any], report: Report, published: PublishedLog, signatures: Signatures | None
) -> None:
    check = LogCheck(signatures)
    snapshots = dict(_snapshots(connection))
    with connection.cursor("log", row_factory=class_row(StoredEvent)) as rows:
        rows.itersize = ROWS_AT_ONCE
        rows.execute(
            "select position, stream, stream_version, kind, time, actor, body, payload from events order by position"
        )
        for stored in rows:
            report.add(check.read(stored))
            report.add(published.compare(stored))
            if check.folds and (body := snapshots.get(stored.position)) is not None:
                report.add(_differing_snapshot(stored.position, body, check))
                report.snapshots += 1
    position, head_hash = connection.execute("select position, hash from log_head").fetchone() or (0, b"")
    report.add(check.end(Chain(position, bytes(head_hash))))
    report.add(published.end(check.chain.position))
    report.events, report.first_chained = check.chain.position, check.first_chained
    if check.folds:
        for table, wanted in check.rows().items():
            found = _rows(connection, table)
            report.rows[table.name] = len(found)
            report.add(differing_rows(table, wanted, found))


def _snapshots(connection: psycopg.Connection[Any]) -> Iterator[tuple[int, bytes]]:
    for position, body in connection.execute("select position, body from snapshots where format = %s", [FORMAT]):
        yield position, bytes(body)


def _differing_snapshot(position: int, body: bytes, check: LogCheck) -> Iterator[Difference]:
    try:
        if view_from_bytes(body) != check.view:
            yield Difference(f"snapshot {position}", "is not what the log comes to at its position")
    except SnapshotError as error:
        yield Difference(f"snapshot {position}", str(error))


def _rows(connection: psycopg.Connection[Any], table: Table) -> list[dict[str, Any]]:
    columns = psycopg.sql.SQL(", ").join(psycopg.sql.Identifier(column.name) for column in table.columns)
    query = psycopg.sql.SQL("select {} from {}").format(columns, psycopg.sql.Identifier(table.name))
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query).fetchall()


def _read_topic(settings: VerifySettings, published: PublishedLog) -> Iterator[Difference]:
    if not settings.home_bootstrap_servers:
        raise UncheckedError("home_bootstrap_servers is not set: set it, or leave mesh.events out (--without-kafka)")
    try:
        topic = published_records(settings, "kafka-mesh-verify-log")
        if topic.first:
            yield Difference(settings.events_topic, f"begins at offset {topic.first}: its beginning was deleted")
        for record in topic.records:
            yield from published.read(record.offset, record.value, record.headers)
    except UnreadError as error:
        raise UncheckedError(f"{error} (--without-kafka leaves it out)") from None


def _told(report: Report) -> Iterator[str]:
    yield f"log: {report.events} events, {_chained(report.first_chained)}"
    for name, count in report.rows.items():
        yield f"{name}: {count} rows"
    yield f"snapshots: {report.snapshots}"
    if report.published is not None:
        yield f"mesh.events: up to event {report.published}"
    for difference in report.differences:
        yield f"DIFFERS  {difference}"
    if report.untold:
        yield f"DIFFERS  and {report.untold} more"
    if not report.differences:
        yield "nothing differs"


def _chained(first: int) -> str:
    if not first:
        return "covered by the hash of the last one"
    return "all chained" if first == 2 else f"chained from event {first} on, which covers those before"


def main(argv: list[str] | None = None) -> None:
    """Entry of `kafka-mesh verify-log`."""
    options = ArgumentParser(add_help=False)
    options.add_argument("--without-kafka", action="store_true", help="do not compare with mesh.events")
    options.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to tell [text]")
    configure_logging("verify-log")
    settings = load(VerifySettings, argv, command="verify-log", options=options)
    chosen = options.parse_known_args(argv)[0]
    try:
        report = verify(settings, with_kafka=not chosen.without_kafka)
    except UncheckedError as error:
        print(f"kafka-mesh verify-log: {error}", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_UNCHECKED) from None
    lines = [json.dumps(asdict(report), indent=2)] if chosen.output == "json" else _told(report)
    for line in lines:
        print(line)  # noqa: T201
    raise SystemExit(EXIT_DIFFERENT if report.differences else 0)


if __name__ == "__main__":
    main()
